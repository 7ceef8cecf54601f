"""`remanence calibrate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.requests import Calibration
    from remanence.stages import Stage

app = App(name="calibrate")
Flag = Annotated[bool, Parameter(negative="")]


@app.default
def calibrate(
    run: Path,
    /,
    *,
    method: str | None = None,
    tuned: Path | None = None,
    option: Annotated[list[str] | None, Parameter(negative="")] = None,
    learning_rate: Annotated[float | None, Parameter(name=["--learning-rate", "--lr"])] = None,
    sets: int = 40,
    small: int = 20,
    sizes: tuple[int, int] = (20, 100),
    models: int = 40,
    budget: int | None = None,
    runs: Annotated[list[Path] | None, Parameter(consume_multiple=True, negative="")] = None,
    workers: int | None = None,
    seed: int = 0,
    json: Flag = False,
) -> None:
    """Learn, once, what later requests on a run need: a pool of reference models, and how long unlearning takes.

    Each reference model is trained without a part of the data, so that for any example there are models that never saw
    it. Then forget sets from easy to hard are unlearned until they look as those models say, and the law of the theory,
    k = A ln(B P + C), is fitted to the steps that it took. Costs somewhat more than training the run `--models` times.
    Killed, the same command goes on. Leaves RUN/calibration.

    For example:

    `remanence calibrate run`

    `remanence calibrate run --lr 0.1 --sets 60 --workers 8`

    Parameters
    ----------
    run:
        A run with a trace, made by `remanence train`.
    method:
        How requests will be unlearned; finetune by default.
    tuned:
        Method and options that `remanence tune` chose; what is given beside it wins.
    option:
        A hyperparameter of the method, name=value; may be given several times.
    learning_rate:
        Of unlearning; that of training by default, with twice its weight decay.
    sets:
        Forget sets to unlearn, at least 20.
    small:
        Further sets of fewer than 20 ids, for requests as small as that; 0 for none.
    sizes:
        Smallest and largest size of the sets.
    models:
        Reference models, at least 20.
    budget:
        Steps after which a set is given up; as many as training took by default.
    runs:
        Runs that were unlearned from this one already, to be counted as further sets.
    workers:
        Processes; as many as there are cores.
    seed:
        Of everything random.
    json:
        Print the outcome as one JSON document.
    """
    from remanence.errors import InputError
    from remanence.experiments import read_choice
    from remanence.models import parse_options
    from remanence.requests import CalibrationSettings
    from remanence.requests import calibrate as make
    from remanence.training import open_run

    chosen = None if tuned is None else read_choice(tuned)
    if chosen is not None and method not in (None, chosen.method):
        raise InputError(
            f"{tuned} was tuned for {chosen.method}; --method {method} needs a choice of its own."
        )
    options: dict[str, Any] = {} if chosen is None else dict(chosen.options)
    options |= parse_options(option or ()) | (
        {} if learning_rate is None else {"learning_rate": learning_rate}
    )
    settings = CalibrationSettings(
        method=method or ("finetune" if chosen is None else chosen.method),
        options=options,
        sets=sets,
        small=small,
        sizes=sizes,
        models=models,
        budget=budget,
        seed=seed,
    )
    opened, own = open_run(run), [open_run(each) for each in runs or ()]
    with console.progress_bar(show=not json) as bar:
        task = bar.add_task("Calibrating", total=None)

        def begin(reused: list[Stage], todo: list[Stage]) -> None:
            bar.update(task, total=sum(stage.cost for stage in todo))
            if reused:
                console.note(f"{len(reused)} pieces of earlier work are used; {len(todo)} are to be done.")

        made = make(
            opened,
            settings,
            workers=(os.cpu_count() or 1) if workers is None else workers,
            own=own,
            on_start=begin,
            on_done=lambda stage: bar.advance(task, stage.cost),
        )
    _tell(made, run, json=json)


def _tell(made: Calibration, run: Path, *, json: bool) -> None:
    from dataclasses import asdict

    from remanence.forecast import compare

    table = [asdict(row) for row in compare(made.runs("mia"))]
    law = made.forecaster("mia").law
    reached = sum(run.reached for run in made.runs("mia"))
    if json:
        document = {
            "run": str(run),
            "sets": len(made.rows),
            "reached": reached,
            "law": law,
            "leave_one_out": table,
        }
        console.print_json(document)
        return
    total = len(made.runs("mia"))
    console.out.print(
        f"Calibrated: {reached} of {total} sets were unlearned within {made.settings.budget} steps. Errors of "
        f"predictors on sets they were not fitted on, in steps (median, mean):",
        soft_wrap=True,
    )
    for row in table:
        mark = "  ← used" if row["predictor"] == law else ""
        console.out.print(
            f"  {row['predictor']:22} {row['median_error']:6.0f} {row['mean_error']:6.0f}{mark}", markup=False
        )
