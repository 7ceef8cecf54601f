"""The dashboard's pages."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException

from remanence.display.axes import draw_norms, draw_scores, drawn
from remanence.display.tables import human
from remanence.errors import RemanenceError, RunFolderError
from remanence.web.gallery import percentiles, read_wish, show
from remanence.web.guard import Guard
from remanence.web.shelf import Shelf, Shelved
from remanence.web.thumbnails import is_picture

_PAGES = Environment(
    loader=PackageLoader("remanence.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.filters["human"] = human
_DRAWING = threading.Lock()
"""Matplotlib's settings are the process's; one figure is drawn at a time."""


def make_app(runs: Sequence[Path], token: str) -> FastAPI:
    """The dashboard over these runs, for whoever has the token."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(Guard(token))
    app.add_exception_handler(RemanenceError, _refused)
    app.add_exception_handler(HTTPException, _nothing_here)
    app.add_exception_handler(RequestValidationError, _nothing_here)
    _add_pages(app, Shelf(runs))
    return app


def _add_pages(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/")
    def runs() -> HTMLResponse:
        return _page("runs.html", runs=shelf.all())

    @app.get("/style.css")
    def style() -> Response:
        return Response(_PAGES.get_template("style.css").render(), media_type="text/css")

    @app.get("/runs/{number}")
    def one_run(number: int) -> HTMLResponse:
        return _run_page(number, shelf.get(number))

    @app.get("/runs/{number}/examples")
    def examples(number: int, request: Request) -> HTMLResponse:
        return _examples_page(number, shelf.get(number), dict(request.query_params))

    @app.get("/runs/{number}/examples/{place}")
    def example(number: int, place: int) -> HTMLResponse:
        return _example_page(number, shelf.get(number), place)

    @app.get("/runs/{number}/pictures/{place}.png")
    def picture(number: int, place: int) -> Response:
        shelved = shelf.get(number)
        shelved.check_place(place)
        if not is_picture(tuple(shelved.examples.inputs.shape[1:])):
            raise RunFolderError("The examples of this run are no pictures.")
        return Response(
            shelved.thumbnail(place), media_type="image/png", headers={"Cache-Control": "private, max-age=60"}
        )


def _run_page(number: int, shelved: Shelved) -> HTMLResponse:
    run = shelved.run
    recorded = run.folder.has("trace.safetensors")
    return _page(
        "run.html",
        number=number,
        path=run.folder.path,
        config=(run.folder.path / "config.toml").read_text(encoding="utf-8"),
        rows=[row for row in run.folder.rows("measurements") if "value" in row][-20:],
        version=run.folder.version,
        digest=run.folder.digest(),
        recorded=recorded,
        norms=_norms(shelved) if recorded else "",
    )


def _examples_page(number: int, shelved: Shelved, query: dict[str, str]) -> HTMLResponse:
    names = shelved.examples.class_names
    wish = read_wish(query, shelved.scores, len(names))
    values = shelved.scores[wish.score].values
    found = show(wish, values, shelved.labels)
    return _page(
        "examples.html",
        number=number,
        path=shelved.run.folder.path,
        wish=wish,
        found=found,
        scores=list(shelved.scores),
        status=shelved.scores[wish.score].status,
        class_names=names,
        spread=_spread(shelved, wish.score),
        pictures=is_picture(tuple(shelved.examples.inputs.shape[1:])),
        cards=[_card(shelved, int(place), values[place]) for place in found.places],
        address=lambda page: "?" + urlencode({**query, "page": page}),
    )


def _card(shelved: Shelved, place: int, value: float) -> dict[str, Any]:
    label = int(shelved.labels[place])
    return {
        "place": place,
        "id": str(shelved.trace.ids[place]),
        "value": float(value),
        "label": shelved.examples.class_names[label],
        "features": shelved.examples.inputs[place].flatten()[:4].tolist(),
    }


def _example_page(number: int, shelved: Shelved, place: int) -> HTMLResponse:
    shelved.check_place(place)
    rows = [
        (name, scores.values[place], percentiles(scores.values)[place], scores.status)
        for name, scores in shelved.scores.items()
    ]
    return _page(
        "example.html",
        number=number,
        card=_card(shelved, place, 0.0),
        rows=rows,
        pictures=is_picture(tuple(shelved.examples.inputs.shape[1:])),
        history=_norms(shelved, place),
        norms=zip(shelved.trace.steps.tolist(), shelved.trace.norms[:, place].tolist(), strict=True),
    )


def _norms(shelved: Shelved, place: int | None = None) -> str:
    trace = shelved.trace
    named = {} if place is None else {str(trace.ids[place]): trace.norms[:, place]}
    with _DRAWING:
        return drawn(lambda axes: draw_norms(axes, trace.steps, trace.norms, named))


def _spread(shelved: Shelved, score: str) -> str:
    """Drawn once a score: it takes longer than all the rest of a page."""
    with _DRAWING:
        if score not in shelved.spreads:
            values = shelved.scores[score].values
            shelved.spreads[score] = drawn(lambda axes: draw_scores(axes, score, values))
        return shelved.spreads[score]


def _page(template: str, code: int = 200, /, **values: Any) -> HTMLResponse:
    return HTMLResponse(_PAGES.get_template(template).render(**values), code)


def _refused(request: Request, error: Exception) -> HTMLResponse:
    status = 404 if isinstance(error, RunFolderError) else 400
    return _page("message.html", status, title="This cannot be shown", text=str(error))


def _nothing_here(request: Request, error: Exception) -> HTMLResponse:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return _page("message.html", status, title="Nothing here", text="There is no such page.")
