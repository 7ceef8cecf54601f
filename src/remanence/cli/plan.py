"""`remanence plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.requests import Plan

app = App(name="plan")
Flag = Annotated[bool, Parameter(negative="")]
_SHOWN = 5


@app.default
def plan(
    run: Path, /, *, ids: Path, column: str = "id", page: Path | None = None, json: Flag = False
) -> None:
    """Say what a deletion request would take, before anything is changed.

    How hard the examples are, steps and minutes to unlearn them with an interval, the cost against retraining, the
    expected effect on test accuracy, the bound with its status, and a recommendation. Needs `remanence calibrate`.

    For example:

    `remanence plan run --ids request.csv --page plan.html`

    Parameters
    ----------
    run:
        A calibrated run.
    ids:
        Who wants to be forgotten: .csv, .parquet or .json, a forget set, or text with one id a line.
    column:
        Column of the ids.
    page:
        Write a page here, with pictures of the hardest examples.
    json:
        Print the plan as one JSON document.
    """
    from remanence.requests import make_plan, read_request, write_plan_page
    from remanence.training import open_run

    opened = open_run(run)
    made = make_plan(opened, read_request(ids, opened, column=column))
    if page is not None:
        write_plan_page(page, opened, made)
    if json:
        console.print_json(made.document())
        return
    print_plan(made)
    if page is not None:
        console.out.print(f"Pictures of the hardest are in {page}.", soft_wrap=True, markup=False)


def print_plan(made: Plan) -> None:
    """A plan for a person."""
    from remanence.report import human

    document = made.document()
    forecast, accuracy, bound = document["forecast"], document["test_accuracy_change"], document["bound"]
    high = "?" if forecast["high"] is None else f"{forecast['high']:.0f}"
    late = "?" if forecast["minutes_high"] is None else f"{forecast['minutes_high']:.1f}"
    hardest = ", ".join(f"{each.id} ({each.percentile:.0f} %)" for each in made.members[:_SHOWN])
    lines = (
        made.recommendation(),
        "",
        f"examples     {document['size']}; harder than {_middle(made)}",
        f"hardest      {hardest}",
        f"steps        {forecast['steps']:.0f}, 90 % interval {forecast['low']:.0f} to {high}",
        f"minutes      {forecast['minutes']:.1f} ({forecast['minutes_low']:.1f} to {late}); retraining takes "
        f"{document['retraining']['minutes']:.1f}",
        f"accuracy     {100 * accuracy['median']:+.1f} points on test data ({100 * accuracy['low']:+.1f} to "
        f"{100 * accuracy['high']:+.1f} in nine of ten calibration runs)",
        f"done when    {made.criterion.sentence()}; it is {made.now[made.criterion.metric]:.2f} now",
        f"bound        {'infinite' if bound['value'] is None else human(bound['value'])} ({bound['status']}), "
        "group loss of all that left so far and of these",
        *(f"! {sentence}" for sentence in made.caveats),
    )
    for line in lines:
        console.out.print(line, soft_wrap=True, markup=False)


def _middle(made: Plan) -> str:
    low, middle, high = (made.percentiles[at] for at in (10, 50, 90))
    return f"{middle:.0f} % of all at their median, {low:.0f} % to {high:.0f} % for eight in ten of them"
