"""`remanence calibrate`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import (
    Address,
    Device,
    ExecutorName,
    Json,
    LearningRate,
    MethodOptions,
    Tuned,
    Workers,
)

if TYPE_CHECKING:
    from remanence.requests import Calibration
    from remanence.stages import Stage

app = App(name="calibrate")


@app.default
def calibrate(
    run: Path,
    /,
    *,
    method: str | None = None,
    tuned: Tuned = None,
    options: MethodOptions = None,
    learning_rate: LearningRate = None,
    sets: int = 20,
    sizes: tuple[int, int] = (5, 100),
    models: int = 12,
    budget: int | None = None,
    workers: Workers = None,
    executor: ExecutorName = "process",
    address: Address = None,
    seed: int = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Prepare a run for deletion requests: train reference models, and measure how long unlearning takes.

    Each reference model is trained without a part of the data, so that for every example there are models that never
    saw it. Then forget sets from easy to hard are unlearned until the criterion holds, and the law of the theory,
    k = A ln(B P + C), is fitted to the number of steps. Costs somewhat more than training the run `--models` times. If
    it is interrupted, the same command continues. Writes RUN/calibration. A run that is calibrated is extended to as
    many models and sets as are asked for; after a request, the models that were trained on the removed examples are
    trained again without them.

    For example:

    `remanence calibrate run`

    `remanence calibrate run --models 40`

    `remanence calibrate run --method finetune --lr 0.1 --sets 60 --workers 8`

    Parameters
    ----------
    run:
        A run with a trace, made by `remanence train`.
    method:
        Unlearning method of later requests. `auto`, the default, finds out for which difficulty out_of_fold, reset and
        shrink_perturb cost least, and decides for each example of a request how it is unlearned (`routed`).
    learning_rate:
        Learning rate of unlearning, for another method than `auto`; by default that of training, with twice its weight
        decay.
    sets:
        Number of forget sets to unlearn, at least 20.
    sizes:
        Smallest and largest size of the sets.
    models:
        Number of reference models, at least 4. With fewer models folds are larger, and results are judged less exactly.
    budget:
        Maximum number of unlearning steps per set; by default the steps of training, with `auto` half of them.
    seed:
        Random seed for the folds, the forget sets and the unlearning.
    """
    from remanence.experiments import tuned_method
    from remanence.models import parse_options
    from remanence.requests import CalibrationSettings
    from remanence.requests import calibrate as make
    from remanence.training import open_run

    given = parse_options(options or ()) | ({} if learning_rate is None else {"learning_rate": learning_rate})
    name, hyperparameters = tuned_method(method, given, tuned, default="auto")
    settings = CalibrationSettings(
        method=name,
        options=hyperparameters,
        sets=sets,
        sizes=sizes,
        models=models,
        budget=budget,
        seed=seed,
    )
    opened = open_run(run, device=device)
    with console.progress_bar(show=not json) as bar:
        task = bar.add_task("Calibrating", total=None)

        def begin(reused: list[Stage], todo: list[Stage]) -> None:
            bar.update(task, total=sum(stage.cost for stage in todo))
            if reused:
                console.note(f"{len(reused)} stages were finished earlier; {len(todo)} remain.")

        calibration = make(
            opened,
            settings,
            workers=(os.cpu_count() or 1) if workers is None else workers,
            executor=executor,
            address=address,
            on_start=begin,
            on_done=lambda stage: bar.advance(task, stage.cost),
        )
    _report(calibration, run, json=json)


def _report(calibration: Calibration, run: Path, *, json: bool) -> None:
    from remanence.forecast import guaranteed_coverage

    facts = _facts(calibration)
    if json:
        interval = {
            "nominal": 0.9,
            "guaranteed": guaranteed_coverage(0.9),
            "observed": facts.pop("observed"),
        }
        console.print_json({"run": str(run), **facts, "interval": interval})
        return
    _print_facts(facts, calibration.settings.budget or 0)
    console.out.print(
        f"A 90 % interval contains the steps of a request like these sets with a probability of at least "
        f"{guaranteed_coverage(0.9):.0%} (jackknife+).",
        soft_wrap=True,
    )


def _facts(calibration: Calibration) -> dict[str, Any]:
    """What the sets of all kinds show."""
    from dataclasses import asdict

    from remanence.forecast import compare

    runs, forecaster = calibration.runs, calibration.forecaster
    tried = [trial.stays for trial in calibration.tried if trial.stays is not None]
    return {
        "method": calibration.method,
        "sets": len(runs),
        "reached": sum(run.reached for run in runs),
        "tried_after_further_training": len(tried),
        "stayed": sum(tried),
        "law": forecaster.law,
        "leave_one_out": [asdict(comparison) for comparison in compare(runs)],
        "observed": forecaster.observed_coverage(),
    }


def _print_facts(facts: Mapping[str, Any], budget: int) -> None:
    tried = facts["tried_after_further_training"]
    stayed = (
        f" {facts['stayed']} of {tried} stayed forgotten after three epochs on retained data."
        if tried
        else ""
    )
    console.out.print(
        f"Calibrated {facts['method']}: {facts['reached']} of {facts['sets']} sets were unlearned within {budget} "
        f"steps.{stayed} Leave-one-out errors of the predictors, in steps (median, mean):",
        soft_wrap=True,
    )
    for row in facts["leave_one_out"]:
        mark = "  ← used" if row["predictor"] == facts["law"] else ""
        console.out.print(
            f"  {row['predictor']:22} {row['median_error']:6.0f} {row['mean_error']:6.0f}{mark}", markup=False
        )
    console.out.print(
        f"Of the {facts['sets']} sets, each forecast from the others, {facts['observed']:.0%} lie in their 90 % "
        "interval.",
        soft_wrap=True,
    )
