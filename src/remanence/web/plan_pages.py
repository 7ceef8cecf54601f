"""Pages to plan a request and to start it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from remanence.display.plots import draw_forecast
from remanence.errors import RemanenceError, RunFolderError
from remanence.requests.calibration import find_calibration
from remanence.training import Run
from remanence.web.page_rendering import message, page
from remanence.web.plans import PlannedRequest, Plans
from remanence.web.request_jobs import JobRunner, jobs_of_run
from remanence.web.run_catalog import OpenedRun, RunCatalog
from remanence.web.run_pages import first_features
from remanence.web.uploads import LIMIT, TooLargeError, printable, read_form

_SHOWN = 16
_LONGEST = 200


def add_plan_pages(app: FastAPI, catalog: RunCatalog, plans: Plans, jobs: JobRunner) -> None:
    @app.get("/runs/{number}/plan")
    def plan_form(number: int) -> HTMLResponse:
        return _form_page(number, catalog.get(number))

    @app.post("/runs/{number}/plan")
    async def plan(number: int, request: Request) -> Response:
        opened = await run_in_threadpool(catalog.get, number)
        sent: dict[str, str] = {}
        try:
            form = await read_form(request)
            sent = form.fields
            planned = await run_in_threadpool(plans.make, number, opened.run, form)
        except RemanenceError as error:
            code = 413 if isinstance(error, TooLargeError) else 400
            return await run_in_threadpool(_form_page, number, opened, code, str(error), sent)
        return RedirectResponse(f"/runs/{number}/plans/{planned.key}", 303)

    @app.get("/runs/{number}/plans/{key}")
    def show_plan(number: int, key: str) -> HTMLResponse:
        return _plan_page(number, catalog.get(number), plans.get(number, key))

    @app.post("/runs/{number}/plans/{key}/start")
    async def start(number: int, key: str, request: Request) -> Response:
        form = await read_form(request)
        opened, planned = await run_in_threadpool(catalog.get, number), plans.get(number, key)
        plans.check(planned, opened.run)
        options: dict[str, Any] = {
            "asked_by": printable(form.fields.get("asked_by", ""), _LONGEST),
            "oracle": form.fields.get("oracle") == "yes",
        }
        place = f"/runs/{number}/requests/{key}"
        try:
            await run_in_threadpool(lambda: jobs.start(opened.run.folder.path, planned, **options))
        except RunFolderError as error:
            exists = any(job.key == key for job in jobs_of_run(opened.run.folder.path))
            link = (place, "Look at this request") if exists else ("/requests", "Look at the requests")
            return message(409, "Not started", str(error), link=link)
        return RedirectResponse(place, 303)


def _form_page(
    number: int, opened: OpenedRun, code: int = 200, wrong: str = "", sent: Mapping[str, str] | None = None
) -> HTMLResponse:
    """The form; after an error, with what was sent."""
    sent = sent or {}
    return page(
        "plan_form.html",
        code,
        number=number,
        path=opened.run.folder.path,
        missing=_missing(opened),
        wrong=wrong,
        text=sent.get("ids", ""),
        column=sent.get("column", "id"),
        some=", ".join(str(example) for example in _some_ids(opened.run)),
        limit=LIMIT >> 20,
    )


def _some_ids(run: Run, wanted: int = 3) -> list[int | str]:
    """A few ids that the run still holds."""
    gone = set(run.removed.tolist())
    return list(islice((example for example in run.clean[0].ids.tolist() if example not in gone), wanted))


def _missing(opened: OpenedRun) -> str:
    """What is missing before requests on this run can be planned; empty when nothing is."""
    try:
        find_calibration(opened.run)
    except RemanenceError as error:
        return str(error)
    return "" if opened.run.folder.has("trace.safetensors") else "The run must hold a trace; it has none."


def _plan_page(number: int, opened: OpenedRun, planned: PlannedRequest) -> HTMLResponse:
    plan = planned.plan
    forecast = plan.forecast
    ends = forecast.steps, forecast.low, forecast.high
    full_training = float(plan.retraining["steps"])
    return page(
        "plan.html",
        number=number,
        path=opened.run.folder.path,
        planned=planned,
        plan=plan.document(ids=False),
        curve=opened.figures.address(
            f"forecast {planned.key}",
            lambda axes: draw_forecast(axes, *ends, full_training, forecast.coverage),
        ),
        hardest=[_member(opened, member) for member in plan.members[:_SHOWN] if member.id in opened.places],
        pictures=opened.shows_pictures,
        version=opened.version,
    )


def _member(opened: OpenedRun, member: Any) -> dict[str, Any]:
    place = opened.places[member.id]
    return {
        "place": place,
        "id": str(member.id),
        "label": member.label,
        "loss": member.loss,
        "percentile": member.percentile,
        "features": first_features(opened, place),
    }
