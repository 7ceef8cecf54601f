"""Pages of runs, their examples, and one example's history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from remanence.display.plots import draw_measurements, draw_norms, draw_scores
from remanence.errors import RemanenceError, RunFolderError
from remanence.experiments import read_measurements
from remanence.types import Measurement
from remanence.web.example_filter import ExampleFilter, Range, read_filter, select_page
from remanence.web.page_rendering import page
from remanence.web.run_catalog import OpenedRun, RunCatalog
from remanence.web.scatter_points import MOST, points

_ROWS = 20
_FEATURES = 4
_ALL_FEATURES = 256


def add_run_pages(app: FastAPI, catalog: RunCatalog) -> None:
    @app.get("/")
    def runs() -> HTMLResponse:
        return page("runs.html", runs=[_run_row(catalog, *row) for row in catalog.all()])

    @app.get("/runs/{number}")
    def one_run(number: int) -> HTMLResponse:
        return _run_page(number, catalog.get(number))

    @app.get("/runs/{number}/examples")
    def examples(number: int, request: Request) -> HTMLResponse:
        opened = catalog.get(number)
        return _examples_page(number, opened, dict(request.query_params))

    @app.get("/runs/{number}/points")
    def scatter(number: int, request: Request) -> JSONResponse:
        opened = catalog.get(number)
        chosen = _filter(opened, dict(request.query_params))
        x, y = (opened.scores[name].values for name in (chosen.score, chosen.against))
        return JSONResponse(points(x, y, opened.labels, opened.examples.class_names or ("all",)))

    @app.get("/runs/{number}/spread.png")
    def spread(number: int, request: Request) -> Response:
        opened = catalog.get(number)
        chosen = _filter(opened, dict(request.query_params))
        return _picture(_spread(opened, chosen.score))

    @app.get("/runs/{number}/examples/{place}")
    def example(number: int, place: int) -> HTMLResponse:
        return _example_page(number, catalog.get(number), place)

    @app.get("/runs/{number}/pictures/{place}.png")
    def thumbnail(number: int, place: int) -> Response:
        opened = catalog.get(number)
        opened.check_place(place)
        if not opened.shows_pictures:
            raise RunFolderError("The examples of this run are not images.")
        return _picture(opened.thumbnail(place))


def _run_row(catalog: RunCatalog, number: int, path: Path, opened: OpenedRun | str) -> dict[str, Any]:
    row = {"number": number, "path": path, "summary": "", "problems": [catalog.problem(path)]}
    try:
        row["summary"] = opened if isinstance(opened, str) else opened.summary
    except (RemanenceError, OSError) as error:
        row["problems"] = [str(error)]
    return row | {"is_open": not isinstance(opened, str)}


def _picture(content: bytes) -> Response:
    return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=60"})


def _run_page(number: int, opened: OpenedRun) -> HTMLResponse:
    run = opened.run
    recorded = run.folder.has("trace.safetensors")
    rows = read_measurements(run.folder)
    curves = _curves(rows)
    return page(
        "run.html",
        number=number,
        path=run.folder.path,
        config=(run.folder.path / "config.toml").read_text(encoding="utf-8"),
        rows=rows[-_ROWS:],
        measured=len(rows),
        curves=opened.figures.address("measurements", lambda axes: draw_measurements(axes, curves))
        if curves
        else "",
        version=run.folder.version,
        digest=run.folder.digest(),
        recorded=recorded,
        evidence=run.folder.has("evidence.json"),
        norms=_norms(opened) if recorded else "",
    )


def _curves(rows: Sequence[Measurement]) -> dict[str, list[tuple[int, float]]]:
    """Values between 0 and 1 (accuracies, attacks) that were measured at several steps, by metric."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        curves.setdefault(row.metric, []).append((row.step, row.value))
    return {
        name: points
        for name, points in curves.items()
        if len({step for step, _ in points}) > 1 and all(0 <= value <= 1 for _, value in points)
    }


def _filter(opened: OpenedRun, query: dict[str, str]) -> ExampleFilter:
    return read_filter(query, list(opened.scores), len(opened.examples.class_names))


def _examples_page(number: int, opened: OpenedRun, query: dict[str, str]) -> HTMLResponse:
    chosen = _filter(opened, query)
    values = {name: opened.scores[name].values for name in (chosen.score, chosen.against)}
    shown = select_page(chosen, values, opened.percentiles(chosen.score), opened.labels)
    return page(
        "examples.html",
        number=number,
        path=opened.run.folder.path,
        chosen=chosen,
        ranges=_ranges(chosen),
        shown=shown,
        scores=list(opened.scores),
        status=opened.scores[chosen.score].status,
        class_names=opened.examples.class_names,
        total=len(opened.trace.ids),
        drawn=min(MOST, len(opened.trace.ids)),
        points=f"/runs/{number}/points?" + urlencode({"score": chosen.score, "against": chosen.against}),
        spread=f"/runs/{number}/spread.png?" + urlencode({"score": chosen.score, "run": opened.version}),
        pictures=opened.shows_pictures,
        version=opened.version,
        cards=[_card(opened, int(place), values[chosen.score][place]) for place in shown.places],
        address=lambda page: "?" + urlencode({**query, "page": page}),
    )


def _ranges(chosen: ExampleFilter) -> list[dict[str, Any]]:
    """The number fields for the selection that brushing makes."""
    x = {"axis": "x", "of": "of", "score": chosen.score, "fields": _fields(chosen.within, "from", "to")}
    ends = _fields(chosen.within_against, "against_from", "against_to")
    return [x, {"axis": "y", "of": "against_of", "score": chosen.against, "fields": ends}]


def _fields(span: Range, low: str, high: str) -> list[tuple[str, str]]:
    """Each end's name and value; an open end is empty."""
    ends = ((low, span.low), (high, span.high))
    return [(name, f"{value:.10g}" if math.isfinite(value) else "") for name, value in ends]


def _card(opened: OpenedRun, place: int, value: float) -> dict[str, Any]:
    example = opened.examples.take(opened.examples.ids[place : place + 1])
    return {
        "place": place,
        "id": str(opened.trace.ids[place]),
        "value": float(value),
        "label": example.label_texts()[0],
        "features": first_features(opened, place),
    }


def first_features(opened: OpenedRun, place: int, most: int = _FEATURES) -> list[float]:
    """The first numbers of an example that is not an image."""
    if opened.shows_pictures:
        return []
    features: list[float] = opened.examples.input_at(place).flatten()[:most].tolist()
    return features


def _example_page(number: int, opened: OpenedRun, place: int) -> HTMLResponse:
    opened.check_place(place)
    rows = [
        (name, scores.values[place], opened.percentiles(name)[place], scores.status)
        for name, scores in opened.scores.items()
    ]
    return page(
        "example.html",
        number=number,
        card=_card(opened, place, 0.0),
        features=first_features(opened, place, _ALL_FEATURES),
        width=math.prod(opened.examples.input_shape),
        rows=rows,
        pictures=opened.shows_pictures,
        version=opened.version,
        history=_norms(opened, place),
        norms=zip(opened.trace.steps.tolist(), opened.trace.norms[:, place].tolist(), strict=True),
    )


def _norms(opened: OpenedRun, place: int | None = None) -> str:
    trace = opened.trace
    named = {} if place is None else {str(trace.ids[place]): trace.norms[:, place]}
    return opened.figures.address(
        f"norms {place}", lambda axes: draw_norms(axes, trace.steps, trace.norms, named)
    )


def _spread(opened: OpenedRun, score: str) -> bytes:
    """The distribution of a score, drawn once."""
    values = opened.scores[score].values
    return opened.figures.png(f"scores {score}", lambda axes: draw_scores(axes, score, values))
