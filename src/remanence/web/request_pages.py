"""Pages of requests: the list, the progress of one, and the evidence of those that are finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from remanence.errors import RemanenceError, RunFolderError
from remanence.requests import read_evidence, verify_evidence
from remanence.requests.evidence import FILE, PAGE
from remanence.requests.signing import fingerprint
from remanence.web.page_rendering import message, page
from remanence.web.request_jobs import Job, JobRunner, jobs_of_run
from remanence.web.run_catalog import OpenedRun, RunCatalog

_DOCUMENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; sandbox"
"""The evidence is a document with its style inside; it may do nothing but be read and printed."""


def add_request_pages(app: FastAPI, catalog: RunCatalog, jobs: JobRunner) -> None:
    @app.get("/requests")
    def requests() -> HTMLResponse:
        return page("requests.html", rows=_all_requests(catalog), runs=len(catalog.paths))

    @app.get("/runs/{number}/requests/{key}")
    def one_request(number: int, key: str) -> HTMLResponse:
        return page("request.html", **_facts(number, catalog, _undamaged(_job(catalog, number, key))))

    @app.get("/runs/{number}/requests/{key}/progress")
    def progress(number: int, key: str) -> HTMLResponse:
        return page("progress.html", **_facts(number, catalog, _undamaged(_job(catalog, number, key))))

    @app.post("/runs/{number}/requests/{key}/{action}")
    def act(number: int, key: str, action: str) -> Response:
        actions: dict[str, Callable[[Job], None]] = {
            "stop": jobs.stop,
            "resume": jobs.resume,
            "discard": jobs.discard,
        }
        if action not in actions:
            raise RunFolderError("There is no such page.")
        job, place = _job(catalog, number, key), f"/runs/{number}/requests/{key}"
        try:
            actions[action](job)
        except RemanenceError as error:
            return message(409, "Not done", str(error), link=(place, "Back to the request"))
        return RedirectResponse("/requests" if action == "discard" else place, 303)

    _add_evidence(app, catalog)


def _add_evidence(app: FastAPI, catalog: RunCatalog) -> None:
    @app.get("/runs/{number}/evidence")
    def evidence(number: int) -> HTMLResponse:
        return _evidence_page(number, _with_evidence(catalog, number))

    @app.get("/runs/{number}/evidence.html")
    def document(number: int) -> Response:
        content = (_with_evidence(catalog, number).run.folder.path / PAGE).read_bytes()
        return Response(
            content, media_type="text/html", headers={"Content-Security-Policy": _DOCUMENT_POLICY}
        )

    @app.get("/runs/{number}/evidence.json")
    def machine_readable(number: int) -> Response:
        content = (_with_evidence(catalog, number).run.folder.path / FILE).read_bytes()
        headers = {"Content-Disposition": 'attachment; filename="evidence.json"'}
        return Response(content, media_type="application/json", headers=headers)


def _with_evidence(catalog: RunCatalog, number: int) -> OpenedRun:
    opened = catalog.get(number)
    if not opened.run.folder.has(FILE):
        raise RunFolderError("This run was not made by a request; it has no evidence.")
    return opened


def _evidence_page(number: int, opened: OpenedRun) -> HTMLResponse:
    path = opened.run.folder.path / FILE
    evidence = read_evidence(path)
    signer = evidence["signer"]
    return page(
        "evidence.html",
        number=number,
        path=opened.run.folder.path,
        evidence=evidence,
        checks=verify_evidence(path),
        signer=None if signer is None else fingerprint(signer["public_key"]),
    )


def _job(catalog: RunCatalog, number: int, key: str) -> Job:
    catalog.check_number(number)
    job = next((job for job in jobs_of_run(catalog.paths[number]) if job.key == key), None)
    if job is None:
        raise RunFolderError("There is no such request on this run.")
    return job


def _undamaged(job: Job) -> Job:
    if job.damage:
        raise RunFolderError(job.damage)
    return job


def _facts(number: int, catalog: RunCatalog, job: Job) -> dict[str, Any]:
    """What the pages of one request show; its state is read once, so that they are consistent."""
    state = job.state
    return {
        "damage": job.damage,
        "number": number,
        "path": catalog.paths[number],
        "key": job.key,
        "note": job.note,
        "state": state,
        "progress": job.progress,
        "output": job.last_output() if state == "stopped" else "",
        "made": catalog.number_of(job.out) if state == "finished" else None,
        "outcome": _evidence_summary(job.out)["outcome"] if state == "finished" else None,
    }


def _evidence_summary(path: Path) -> dict[str, Any]:
    """The request in a run's evidence, for the list; the evidence page says what is wrong with a damaged one."""
    try:
        evidence = read_evidence(path / FILE)
        request = evidence["request"]
        note = {"file": f"request {request['reference']}", "size": request["size"]}
        return {"when": evidence["made"], "note": note, "outcome": evidence["outcome"]}
    except (RemanenceError, OSError):
        return {"when": "", "note": {"file": "evidence that cannot be read", "size": 0}, "outcome": None}


def _all_requests(catalog: RunCatalog) -> list[dict[str, Any]]:
    """Requests that the dashboard started, and those whose evidence is in one of the runs; newest first."""
    catalog.discover()
    rows, made_here = [], set()
    for number, path in enumerate(catalog.paths):
        for job in jobs_of_run(path):
            made_here.add(job.out.resolve())
            facts = _facts(number, catalog, job)
            if facts["note"] or facts["damage"]:  # otherwise it was removed meanwhile
                rows.append({"when": facts["note"].get("when", ""), **facts})
    for number, path, opened in catalog.all():
        if path.resolve() in made_here or isinstance(opened, str) or not opened.run.folder.has(FILE):
            continue
        rows.append(
            {"path": path, "state": "finished", "made": number, "key": "", "damage": ""}
            | _evidence_summary(path)
        )
    return sorted(rows, key=lambda row: str(row["when"]), reverse=True)
