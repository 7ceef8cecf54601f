"""What a request is expected to take, from the calibration of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from remanence.experiments.measuring import EXCESS
from remanence.forecast import Expectation, difficulty_of
from remanence.requests.calibration import FOLDER, ROUTED, Calibration, with_targets
from remanence.requests.criterion import Criterion, criterion_for
from remanence.requests.method_choice import MethodForecast, calibrated_forecast
from remanence.requests.plan_caveats import caveats_of, hard_together
from remanence.requests.request import Request
from remanence.requests.routing import explain, needs_nothing, way_of, without_work
from remanence.requests.verdict import Excess
from remanence.scores import ScoreTable
from remanence.training import Run


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a request is expected to take.

    Args:
        expected: the expected metrics of a model never trained on the examples; None without reference models.
        criterion: when unlearning stops.
        candidates: the methods, the smallest expected cost first.
        options: hyperparameters of the first one.
        seconds_per_step: of unlearning.
        retraining: steps and seconds of retraining.
        accuracy: change of test accuracy: median, and 5 % and 95 % quantiles; None if it is not known.
        budget: maximum number of steps.
        done: whether the criterion holds before unlearning, and nothing is done that could change it.
        reason: why this method, where there was a choice.
        caveats: limits of the estimate, as sentences.
    """

    expected: Expectation | None
    criterion: Criterion
    candidates: tuple[MethodForecast, ...]
    options: Mapping[str, Any]
    seconds_per_step: float
    retraining: Mapping[str, float]
    accuracy: tuple[float, float, float] | None
    budget: int
    done: bool
    reason: str | None
    caveats: tuple[str, ...]


def calibrated_estimate(
    run: Run,
    calibration: Calibration,
    request: Request,
    table: ScoreTable,
    excess: Excess,
    now: Mapping[str, float],
) -> Estimate:
    """The estimate from a calibration.

    Args:
        run: the calibrated run.
        calibration: its calibration.
        request: the request.
        table: the scores of the run's examples.
        excess: what decides when unlearning stops.
        now: metrics of the model before unlearning.
    """
    settings = calibration.settings
    assert settings.budget is not None  # a calibration has resolved settings
    expected = calibration.pool.expect(request.ids)
    retained = len(run.data()[0]) - len(request.ids)
    criterion = criterion_for(
        excess.error, now[EXCESS], run.settings.recipe.steps_per_epoch(max(1, retained))
    )
    done = criterion.is_close(now[criterion.metric])
    method, losses = calibration.method, table.column("privacy_loss")
    options = settings.options_of(method, run)
    idle = needs_nothing(method, excess.error, len(request.ids), done=done)
    if idle:
        options = without_work(options, losses, request.ids)
    way = way_of(method, options, losses, request.ids)
    difficulty = difficulty_of(request.ids, table, done=done, way=way)
    expected_cost = calibrated_forecast(calibration, difficulty)
    caveats = caveats_of(calibration, request, expected, expected_cost.forecast, now)
    why = method == ROUTED and not idle
    return Estimate(
        expected,
        criterion,
        (expected_cost,),
        with_targets(method, options, run.folder.path / FOLDER),
        calibration.seconds_per_step,
        calibration.retraining,
        _accuracy_changes(calibration),
        settings.budget,
        difficulty.no_steps,
        explain(options, calibration.trials, losses, request.ids) if why else None,
        (*caveats, *hard_together(table, request, expected)),
    )


def _accuracy_changes(calibration: Calibration) -> tuple[float, float, float]:
    changes = [trial.accuracy_change for trial in calibration.tried]
    median, low, high = np.quantile(changes, (0.5, 0.05, 0.95))
    return float(median), float(low), float(high)
