"""Requests: which there are, how far one is, stop, go on, and the evidence of those that are finished."""

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
from remanence.web.damaged_files import is_number, reading
from remanence.web.page_rendering import message, page
from remanence.web.request_processes import Job, Jobs, jobs_of
from remanence.web.run_catalog import Shelf, Shelved

_DOCUMENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; sandbox"
"""The evidence is a document with its style inside; it may do nothing but be read and printed."""


def add_request_pages(app: FastAPI, shelf: Shelf, jobs: Jobs) -> None:
    """Serve them."""

    @app.get("/requests")
    def requests() -> HTMLResponse:
        return page("requests.html", rows=_all_requests(shelf), runs=len(shelf.paths))

    @app.get("/runs/{number}/requests/{key}")
    def one_request(number: int, key: str) -> HTMLResponse:
        return page("request.html", **_facts(number, shelf, _undamaged(_job(shelf, number, key))))

    @app.get("/runs/{number}/requests/{key}/progress")
    def progress(number: int, key: str) -> HTMLResponse:
        return page("progress.html", **_facts(number, shelf, _undamaged(_job(shelf, number, key))))

    @app.post("/runs/{number}/requests/{key}/{deed}")
    def act(number: int, key: str, deed: str) -> Response:
        deeds: dict[str, Callable[[Job], None]] = {
            "stop": jobs.stop,
            "resume": jobs.resume,
            "discard": jobs.discard,
        }
        if deed not in deeds:
            raise RunFolderError("There is no such page.")
        job, place = _job(shelf, number, key), f"/runs/{number}/requests/{key}"
        try:
            deeds[deed](job)
        except RemanenceError as error:
            return message(409, "Not done", str(error), link=(place, "Back to the request"))
        return RedirectResponse("/requests" if deed == "discard" else place, 303)

    _add_evidence(app, shelf)


def _add_evidence(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/runs/{number}/evidence")
    def evidence(number: int) -> HTMLResponse:
        return _evidence_page(number, _with_evidence(shelf, number))

    @app.get("/runs/{number}/evidence.html")
    def document(number: int) -> Response:
        content = (_with_evidence(shelf, number).run.folder.path / PAGE).read_bytes()
        return Response(
            content, media_type="text/html", headers={"Content-Security-Policy": _DOCUMENT_POLICY}
        )

    @app.get("/runs/{number}/evidence.json")
    def machine_readable(number: int) -> Response:
        content = (_with_evidence(shelf, number).run.folder.path / FILE).read_bytes()
        headers = {"Content-Disposition": 'attachment; filename="evidence.json"'}
        return Response(content, media_type="application/json", headers=headers)


def _with_evidence(shelf: Shelf, number: int) -> Shelved:
    shelved = shelf.get(number)
    if not shelved.run.folder.has(FILE):
        raise RunFolderError("This run was not made by a request; it has no evidence.")
    return shelved


def _evidence_page(number: int, shelved: Shelved) -> HTMLResponse:
    path = shelved.run.folder.path / FILE
    told = read_evidence(path)
    with reading(path):
        signature = told["signature"]
        return page(
            "evidence.html",
            number=number,
            path=shelved.run.folder.path,
            told=told,
            checks=verify_evidence(path),
            signer=None if signature is None else fingerprint(signature["public_key"]),
        )


def _job(shelf: Shelf, number: int, key: str) -> Job:
    shelf.check_number(number)
    found = next((job for job in jobs_of(shelf.paths[number]) if job.key == key), None)
    if found is None:
        raise RunFolderError("There is no such request on this run.")
    return found


def _undamaged(job: Job) -> Job:
    if job.damage:
        raise RunFolderError(job.damage)
    return job


def _facts(number: int, shelf: Shelf, job: Job) -> dict[str, Any]:
    """What the pages of one request show; its state is read once, so that they are consistent."""
    state = job.state
    return {
        "damage": job.damage,
        "number": number,
        "path": shelf.paths[number],
        "key": job.key,
        "note": job.note,
        "state": state,
        "progress": job.progress,
        "said": job.said() if state == "stopped" else "",
        "made": shelf.number_of(job.out) if state == "finished" else None,
        "reached": _told(job.out)["reached"] if state == "finished" else None,
    }


def _told(path: Path) -> dict[str, Any]:
    """What a run's evidence says of its request; its own page says what is wrong with one that is damaged."""
    try:
        told = read_evidence(path / FILE)
        with reading(path):
            size = told["request"]["size"]
            note = {"file": str(told["request"]["name"]), "size": size if is_number(size) else "unknown"}
            return {"when": told["made"], "note": note, "reached": bool(told["actual"]["reached"])}
    except (RemanenceError, OSError):
        return {"when": "", "note": {"file": "evidence that cannot be read", "size": 0}, "reached": None}


def _all_requests(shelf: Shelf) -> list[dict[str, Any]]:
    """Those started here, and those whose evidence is in one of the runs; the newest first."""
    shelf.discover()
    rows, made_here = [], set()
    for number, path in enumerate(shelf.paths):
        for job in jobs_of(path):
            made_here.add(job.out.resolve())
            facts = _facts(number, shelf, job)
            if facts["note"] or facts["damage"]:  # otherwise it was removed meanwhile
                rows.append({"when": facts["note"].get("when", ""), **facts})
    for number, path, shelved in shelf.all():
        if path.resolve() in made_here or isinstance(shelved, str) or not shelved.run.folder.has(FILE):
            continue
        rows.append({"path": path, "state": "finished", "made": number, "key": ""} | _told(path))
    return sorted(rows, key=lambda row: str(row["when"]), reverse=True)
