"""The dashboard as an ASGI application."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from remanence.errors import RemanenceError, RunFolderError
from remanence.web.access_control import AccessControl
from remanence.web.certificate_pages import add_certificate_pages
from remanence.web.fair_queue import FairTurns
from remanence.web.page_rendering import message
from remanence.web.plan_pages import add_plan_pages
from remanence.web.plans import Plans
from remanence.web.request_jobs import JobRunner
from remanence.web.request_pages import add_request_pages
from remanence.web.run_catalog import RunCatalog
from remanence.web.run_pages import add_run_pages
from remanence.web.static_files import add_static_files
from remanence.web.study_pages import add_study_pages
from remanence.web.uploads import TooLargeError


def make_app(
    runs: Sequence[Path],
    token: str,
    *,
    store: Path | None = None,
    data_dir: Path | None = None,
    key: Path | None = None,
    certificates: Sequence[Path] = (),
) -> FastAPI:
    """Make the dashboard.

    Args:
        runs: folders of the runs to show.
        token: secret that gives access to all pages and actions.
        store: folder with the artifacts of studies.
        data_dir: folder with the data sets of the studies.
        key: private key that signs the evidence of requests.
        certificates: files with the output of `remanence certify --json`.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(FairTurns)
    app.add_middleware(AccessControl, token=token)  # the last one is the outermost
    app.add_exception_handler(RemanenceError, _refused)
    app.add_exception_handler(HTTPException, _nothing_here)
    app.add_exception_handler(RequestValidationError, _nothing_here)
    app.add_exception_handler(OSError, _gone)
    app.add_exception_handler(Exception, _failed)
    catalog, jobs = RunCatalog(runs), JobRunner(key)
    app.state.catalog = catalog
    add_static_files(app)
    add_run_pages(app, catalog)
    add_plan_pages(app, catalog, Plans(), jobs)
    add_request_pages(app, catalog, jobs)
    add_study_pages(app, store, data_dir)
    add_certificate_pages(app, catalog, certificates)
    return app


def _refused(request: Request, error: Exception) -> HTMLResponse:
    status = 404 if isinstance(error, RunFolderError) else 413 if isinstance(error, TooLargeError) else 400
    return message(status, "This cannot be shown" if status == 404 else "This cannot be done", str(error))


def _gone(request: Request, error: Exception) -> HTMLResponse:
    if isinstance(error, FileNotFoundError):
        return message(404, "This cannot be shown", "A file that this page needs is missing.")
    why = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be read or written"
    return message(500, "This cannot be done", f"The disk refused: {why}.")


def _failed(request: Request, error: Exception) -> HTMLResponse:
    """A bug: the terminal has the traceback. The answer is made outside the access control, so it has no details."""
    return message(
        500, "Something went wrong", "This is a bug in the dashboard; the terminal shows the details."
    )


def _nothing_here(request: Request, error: Exception) -> HTMLResponse:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return message(status, "Page not found", "There is no such page.")
