"""`remanence plan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import Force, IdColumn, Ids, IfRemoved, IfUnknown, Json, User

if TYPE_CHECKING:
    from remanence.requests import Plan

app = App(name="plan")
_SHOWN = 5


@app.default
def plan(
    run: Path,
    /,
    *,
    ids: Ids = None,
    user: User = None,
    column: IdColumn = "id",
    unknown: IfUnknown = "refuse",
    already_removed: IfRemoved = "refuse",
    page: Path | None = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Estimate the steps, time and cost of a deletion request; changes nothing.

    Shows the difficulty of the examples, steps and minutes with an interval, the cost relative to retraining, the
    expected change of test accuracy, the bound with its status, and a recommendation. Before `remanence calibrate`, the
    plan is made from the trace alone: with a forecast from other runs, and without a way to judge the result.

    For example:

    `remanence plan run --ids request.csv --page plan.html`

    `remanence plan run --user ann`

    Parameters
    ----------
    run:
        A run with a trace.
    page:
        Write an HTML page to this file (.html), with pictures of the hardest examples.
    """
    from remanence.requests import find_request, make_plan, write_plan_page
    from remanence.requests.plan_page import check_page
    from remanence.training import open_run

    if page is not None:
        check_page(page, force=force)  # before the work
    opened = open_run(run)
    request = find_request(
        opened, ids=ids, user=user, column=column, unknown=unknown, already_removed=already_removed
    )
    console.note_skipped(request.skipped)
    estimate = make_plan(opened, request)
    if page is not None:
        write_plan_page(page, opened, estimate)
    if json:
        console.print_json(estimate.document())
        return
    _print_plan(estimate)
    if page is not None:
        console.out.print(
            f"The page with pictures of the hardest examples is {page}.", soft_wrap=True, markup=False
        )


def _print_plan(plan: Plan) -> None:
    from remanence.report import human

    document = plan.document()
    forecast, bound = document["forecast"], document["bound"]
    high = "?" if forecast["high"] is None else f"{forecast['high']:.0f}"
    late = "?" if forecast["minutes_high"] is None else f"{forecast['minutes_high']:.1f}"
    hardest = ", ".join(f"{member.id} ({member.percentile:.0f} %)" for member in plan.members[:_SHOWN])
    lines = (
        plan.recommendation(),
        *([plan.reason] if plan.reason else []),
        "",
        f"examples     {document['size']}; harder than {_percentiles(plan)}",
        f"hardest      {hardest}",
        f"steps        {forecast['steps']:.0f}, 90 % interval {forecast['low']:.0f} to {high}",
        f"minutes      {forecast['minutes']:.1f} ({forecast['minutes_low']:.1f} to {late}); retraining takes "
        f"{document['retraining']['minutes']:.1f}",
        f"accuracy     {_accuracy(document['test_accuracy_change'])}",
        f"done when    {plan.criterion.sentence()}{_now(plan)}",
        f"bound        {'infinite' if bound['value'] is None else human(bound['value'])} ({bound['status']}), "
        "group loss of all removed examples and of these",
        *(f"! {sentence}" for sentence in plan.caveats),
    )
    for line in lines:
        console.out.print(line, soft_wrap=True, markup=False)


def _accuracy(change: Mapping[str, float] | None) -> str:
    if change is None:
        return "its change is not known without a calibration"
    return (
        f"{100 * change['median']:+.1f} points on test data ({100 * change['low']:+.1f} to "
        f"{100 * change['high']:+.1f} in nine of ten calibration runs)"
    )


def _now(plan: Plan) -> str:
    value = plan.now.get(plan.criterion.metric)
    return "" if value is None else f"; it is {value:.2f} now"


def _percentiles(plan: Plan) -> str:
    low, median, high = (plan.percentiles[at] for at in (10, 50, 90))
    return f"{median:.0f} % of all examples (median), {low:.0f} % to {high:.0f} % for eight in ten of them"
