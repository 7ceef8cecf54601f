"""Pages of studies: the list, their progress and their results."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse

from remanence.errors import RunFolderError
from remanence.web.page_rendering import page
from remanence.web.studies import Studies


def add_study_pages(app: FastAPI, store: Path | None, data_dir: Path | None = None) -> None:
    """Add the pages; without a store, one page says how to make one."""
    studies = None if store is None else Studies(store, data_dir)

    @app.get("/studies")
    def all_studies() -> HTMLResponse:
        return page("studies.html", **_list(studies))

    @app.get("/studies/progress")
    def progress() -> HTMLResponse:
        return page("stages.html", **_list(studies))

    @app.get("/studies/{key}")
    def one_study(key: str) -> HTMLResponse:
        return _study_page(_known(studies), key)

    @app.get("/studies/{key}/figures/{name}.png")
    def figure(key: str, name: str) -> Response:
        known = _known(studies)
        return Response(known.picture(known.one(key), name), media_type="image/png")


def _list(studies: Studies | None) -> dict[str, object]:
    if studies is None:
        return {"store": None, "running": False, "studies": [], "stages": 0}
    return {
        "store": studies.root,
        "running": studies.running(),
        "studies": studies.all(),
        "stages": len(studies.finished_stages()),
    }


def _known(studies: Studies | None) -> Studies:
    if studies is None:
        raise RunFolderError("The dashboard was started without a store of studies.")
    return studies


def _study_page(studies: Studies, key: str) -> HTMLResponse:
    study = studies.one(key)
    return page(
        "study.html",
        study=study,
        running=studies.running(),
        results=studies.folder(study).document("results") if study.finished else None,
        figures=studies.figures(study) if study.finished else [],
    )
