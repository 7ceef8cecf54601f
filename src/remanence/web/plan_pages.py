"""Plan a request: paste ids or send a file, see what it would take, and start it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from remanence.display.plots import draw_forecast
from remanence.errors import RemanenceError, RunFolderError
from remanence.requests import read_calibration
from remanence.requests.calibration import FOLDER as CALIBRATION
from remanence.training import Run
from remanence.web.damaged_files import reading
from remanence.web.page_rendering import message, page
from remanence.web.plans import Asked, Plans
from remanence.web.request_processes import Jobs, jobs_of
from remanence.web.run_catalog import Shelf, Shelved
from remanence.web.run_pages import first_features
from remanence.web.uploads import LIMIT, TooLargeError, printable, read_form

_SHOWN = 16
_LONGEST = 200


def add_plan_pages(app: FastAPI, shelf: Shelf, plans: Plans, jobs: Jobs) -> None:
    """Serve them."""

    @app.get("/runs/{number}/plan")
    def ask(number: int) -> HTMLResponse:
        return _ask_page(number, shelf.get(number))

    @app.post("/runs/{number}/plan")
    async def plan(number: int, request: Request) -> Response:
        shelved = await run_in_threadpool(shelf.get, number)
        sent: dict[str, str] = {}
        try:
            form = await read_form(request)
            sent = form.fields
            asked = await run_in_threadpool(plans.make, number, shelved.run, form)
        except RemanenceError as error:
            code = 413 if isinstance(error, TooLargeError) else 400
            return await run_in_threadpool(_ask_page, number, shelved, code, str(error), sent)
        return RedirectResponse(f"/runs/{number}/plans/{asked.key}", 303)

    @app.get("/runs/{number}/plans/{key}")
    def planned(number: int, key: str) -> HTMLResponse:
        return _plan_page(number, shelf.get(number), plans.get(number, key))

    @app.post("/runs/{number}/plans/{key}/start")
    async def start(number: int, key: str, request: Request) -> Response:
        form = await read_form(request)
        shelved, asked = await run_in_threadpool(shelf.get, number), plans.get(number, key)
        plans.check(asked, shelved.run)
        orders: dict[str, Any] = {
            "asked_by": printable(form.fields.get("asked_by", ""), _LONGEST),
            "oracle": form.fields.get("oracle") == "yes",
        }
        place = f"/runs/{number}/requests/{key}"
        try:
            await run_in_threadpool(lambda: jobs.start(shelved.run.folder.path, asked, **orders))
        except RunFolderError as error:
            begun = any(job.key == key for job in jobs_of(shelved.run.folder.path))
            link = (place, "Look at this request") if begun else ("/requests", "Look at the requests")
            return message(409, "Not started", str(error), link=link)
        return RedirectResponse(place, 303)


def _ask_page(
    number: int, shelved: Shelved, code: int = 200, wrong: str = "", sent: Mapping[str, str] | None = None
) -> HTMLResponse:
    """The form, with what was sent where something was wrong with it."""
    sent = sent or {}
    return page(
        "plan_form.html",
        code,
        number=number,
        path=shelved.run.folder.path,
        missing=_missing(shelved),
        wrong=wrong,
        text=sent.get("ids", ""),
        column=sent.get("column", "id"),
        some=", ".join(str(each) for each in _some_ids(shelved.run)),
        limit=LIMIT >> 20,
    )


def _some_ids(run: Run, wanted: int = 3) -> list[int | str]:
    """A few ids that can still be asked for."""
    gone = set(run.removed.tolist())
    return list(islice((each for each in run.clean[0].ids.tolist() if each not in gone), wanted))


def _missing(shelved: Shelved) -> str:
    """What has to be done before requests on this run can be planned."""
    try:
        with reading(shelved.run.folder.path / CALIBRATION):
            read_calibration(shelved.run)
    except RemanenceError as error:
        return str(error)
    return "" if shelved.run.folder.has("trace.safetensors") else "The run must hold a trace; it has none."


def _plan_page(number: int, shelved: Shelved, asked: Asked) -> HTMLResponse:
    plan = asked.plan
    forecast = plan.forecast
    ends = forecast.steps, forecast.low, forecast.high
    anew = float(plan.retraining["steps"])
    return page(
        "plan.html",
        number=number,
        path=shelved.run.folder.path,
        asked=asked,
        plan=plan.document(ids=False),
        curve=shelved.figures.address(
            f"forecast {asked.key}", lambda axes: draw_forecast(axes, *ends, anew, forecast.coverage)
        ),
        hardest=[_member(shelved, each) for each in plan.members[:_SHOWN] if each.id in shelved.places],
        pictures=shelved.shows_pictures,
        version=shelved.version,
    )


def _member(shelved: Shelved, each: Any) -> dict[str, Any]:
    place = shelved.places[each.id]
    return {
        "place": place,
        "id": str(each.id),
        "label": each.label,
        "loss": each.loss,
        "percentile": each.percentile,
        "features": first_features(shelved, place),
    }
