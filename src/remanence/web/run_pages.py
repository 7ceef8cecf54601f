"""Pages of runs, their examples, and one example's history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from remanence.display.plots import draw_measurements, draw_norms, draw_scores
from remanence.errors import RemanenceError, RunFolderError
from remanence.web.damaged_files import reading
from remanence.web.example_filter import Range, Wish, read_wish, show
from remanence.web.page_rendering import page
from remanence.web.run_catalog import Shelf, Shelved
from remanence.web.scatter_points import MOST, points

_ROWS = 20
_FEATURES = 4
_ALL_FEATURES = 256


def add_run_pages(app: FastAPI, shelf: Shelf) -> None:
    """Serve them."""

    @app.get("/")
    def runs() -> HTMLResponse:
        return page("runs.html", runs=[_run_row(shelf, *row) for row in shelf.all()])

    @app.get("/runs/{number}")
    def one_run(number: int) -> HTMLResponse:
        shelved = shelf.get(number)
        with reading(shelved.run.folder.path):
            return _run_page(number, shelved)

    @app.get("/runs/{number}/examples")
    def examples(number: int, request: Request) -> HTMLResponse:
        shelved = shelf.get(number)
        return _examples_page(number, shelved, dict(request.query_params))

    @app.get("/runs/{number}/points")
    def scatter(number: int, request: Request) -> JSONResponse:
        shelved = shelf.get(number)
        wish = _wish(shelved, dict(request.query_params))
        x, y = (shelved.scores[name].values for name in (wish.score, wish.against))
        return JSONResponse(points(x, y, shelved.labels, shelved.examples.class_names))

    @app.get("/runs/{number}/spread.png")
    def spread(number: int, request: Request) -> Response:
        shelved = shelf.get(number)
        wish = _wish(shelved, dict(request.query_params))
        return _picture(_spread(shelved, wish.score))

    @app.get("/runs/{number}/examples/{place}")
    def example(number: int, place: int) -> HTMLResponse:
        return _example_page(number, shelf.get(number), place)

    @app.get("/runs/{number}/pictures/{place}.png")
    def thumbnail(number: int, place: int) -> Response:
        shelved = shelf.get(number)
        shelved.check_place(place)
        if not shelved.shows_pictures:
            raise RunFolderError("The examples of this run are no pictures.")
        return _picture(shelved.thumbnail(place))


def _run_row(shelf: Shelf, number: int, path: Path, shelved: Shelved | str) -> dict[str, Any]:
    row = {"number": number, "path": path, "summary": "", "problems": [shelf.problem(path)]}
    try:
        row["summary"] = shelved if isinstance(shelved, str) else shelved.summary
    except (RemanenceError, OSError) as error:
        row["problems"] = [str(error)]
    return row | {"is_open": not isinstance(shelved, str)}


def _picture(content: bytes) -> Response:
    return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=60"})


def _run_page(number: int, shelved: Shelved) -> HTMLResponse:
    run = shelved.run
    recorded = run.folder.has("trace.safetensors")
    rows = [row for row in run.folder.rows("measurements") if "value" in row]
    curves = _curves(rows)
    return page(
        "run.html",
        number=number,
        path=run.folder.path,
        config=(run.folder.path / "config.toml").read_text(encoding="utf-8"),
        rows=rows[-_ROWS:],
        measured=len(rows),
        curves=shelved.figures.address("measurements", lambda axes: draw_measurements(axes, curves))
        if curves
        else "",
        version=run.folder.version,
        digest=run.folder.digest(),
        recorded=recorded,
        evidence=run.folder.has("evidence.json"),
        norms=_norms(shelved) if recorded else "",
    )


def _curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Shares (accuracies, attacks) that were measured more than once on the way, by metric."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        found.setdefault(str(row["metric"]), []).append((int(row["step"]), float(row["value"])))
    return {
        name: points
        for name, points in found.items()
        if len({step for step, _ in points}) > 1 and all(0 <= value <= 1 for _, value in points)
    }


def _wish(shelved: Shelved, query: dict[str, str]) -> Wish:
    return read_wish(query, list(shelved.scores), len(shelved.examples.class_names))


def _examples_page(number: int, shelved: Shelved, query: dict[str, str]) -> HTMLResponse:
    wish = _wish(shelved, query)
    values = {name: shelved.scores[name].values for name in (wish.score, wish.against)}
    found = show(wish, values, shelved.percentiles(wish.score), shelved.labels)
    return page(
        "examples.html",
        number=number,
        path=shelved.run.folder.path,
        wish=wish,
        ranges=_ranges(wish),
        found=found,
        scores=list(shelved.scores),
        status=shelved.scores[wish.score].status,
        class_names=shelved.examples.class_names,
        total=len(shelved.trace.ids),
        drawn=min(MOST, len(shelved.trace.ids)),
        points=f"/runs/{number}/points?" + urlencode({"score": wish.score, "against": wish.against}),
        spread=f"/runs/{number}/spread.png?" + urlencode({"score": wish.score, "run": shelved.version}),
        pictures=shelved.shows_pictures,
        version=shelved.version,
        cards=[_card(shelved, int(place), values[wish.score][place]) for place in found.places],
        address=lambda page: "?" + urlencode({**query, "page": page}),
    )


def _ranges(wish: Wish) -> list[dict[str, Any]]:
    """The number fields that do what brushing does."""
    x = {"axis": "x", "of": "of", "score": wish.score, "fields": _fields(wish.within, "from", "to")}
    ends = _fields(wish.within_against, "against_from", "against_to")
    return [x, {"axis": "y", "of": "against_of", "score": wish.against, "fields": ends}]


def _fields(span: Range, low: str, high: str) -> list[tuple[str, str]]:
    """Each end's name and value; an open end is empty."""
    ends = ((low, span.low), (high, span.high))
    return [(name, f"{value:.10g}" if math.isfinite(value) else "") for name, value in ends]


def _card(shelved: Shelved, place: int, value: float) -> dict[str, Any]:
    label = int(shelved.labels[place])
    return {
        "place": place,
        "id": str(shelved.trace.ids[place]),
        "value": float(value),
        "label": shelved.examples.class_names[label],
        "features": first_features(shelved, place),
    }


def first_features(shelved: Shelved, place: int, most: int = _FEATURES) -> list[float]:
    """The first numbers of an example that is no picture."""
    if shelved.shows_pictures:
        return []
    found: list[float] = shelved.examples.input_at(place).flatten()[:most].tolist()
    return found


def _example_page(number: int, shelved: Shelved, place: int) -> HTMLResponse:
    shelved.check_place(place)
    rows = [
        (name, scores.values[place], shelved.percentiles(name)[place], scores.status)
        for name, scores in shelved.scores.items()
    ]
    return page(
        "example.html",
        number=number,
        card=_card(shelved, place, 0.0),
        features=first_features(shelved, place, _ALL_FEATURES),
        width=math.prod(shelved.examples.input_shape),
        rows=rows,
        pictures=shelved.shows_pictures,
        version=shelved.version,
        history=_norms(shelved, place),
        norms=zip(shelved.trace.steps.tolist(), shelved.trace.norms[:, place].tolist(), strict=True),
    )


def _norms(shelved: Shelved, place: int | None = None) -> str:
    trace = shelved.trace
    named = {} if place is None else {str(trace.ids[place]): trace.norms[:, place]}
    return shelved.figures.address(
        f"norms {place}", lambda axes: draw_norms(axes, trace.steps, trace.norms, named)
    )


def _spread(shelved: Shelved, score: str) -> bytes:
    """Drawn once a score, and by itself: it takes longer than all the rest of a page."""
    values = shelved.scores[score].values
    return shelved.figures.png(f"scores {score}", lambda axes: draw_scores(axes, score, values))
