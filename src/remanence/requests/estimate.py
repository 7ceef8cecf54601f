"""What a request is expected to take, from the calibration of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remanence.experiments.measuring import EXCESS
from remanence.forecast import Expectation, difficulty_of
from remanence.requests.calibration import FOLDER, ROUTED, Calibration, with_targets
from remanence.requests.criterion import Criterion, criterion_for
from remanence.requests.method_choice import MethodForecast, method_forecasts, why
from remanence.requests.plan_caveats import caveats_of, hard_together
from remanence.requests.request import Request
from remanence.requests.routing import explain, needs_nothing, without_work
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
        done: whether the criterion holds before unlearning.
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
    candidates = method_forecasts(calibration, difficulty_of(request.ids, table, done=done))
    method = candidates[0].method
    options = settings.options_of(method, run)
    idle = needs_nothing(method, excess.error, len(request.ids), done=done)
    if idle:
        options = without_work(options, table.column("privacy_loss"), request.ids)
    caveats = caveats_of(calibration, request, expected, candidates[0].forecast, now)
    return Estimate(
        expected,
        criterion,
        tuple(candidates),
        with_targets(method, options, run.folder.path / FOLDER),
        calibration.seconds_per_step(method),
        calibration.retraining,
        _accuracy_changes(calibration, method),
        settings.budget,
        done,
        None if idle else _reason(calibration, request, table, candidates),
        (*caveats, *hard_together(table, request, expected)),
    )


def _reason(
    calibration: Calibration, request: Request, table: ScoreTable, candidates: Sequence[MethodForecast]
) -> str | None:
    if candidates[0].method != ROUTED:
        return why(candidates) if len(candidates) > 1 else None
    losses = table.column("privacy_loss")
    return explain(calibration.settings.options, calibration.trials, losses, request.ids)


def _accuracy_changes(calibration: Calibration, method: str) -> tuple[float, float, float]:
    changes = [trial.accuracy_change for trial in calibration.tried(method)]
    median, low, high = np.quantile(changes, (0.5, 0.05, 0.95))
    return float(median), float(low), float(high)
