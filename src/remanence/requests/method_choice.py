"""What a request is expected to cost with a method, and which of several it is unlearned with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remanence.forecast import Difficulty, Forecast
from remanence.requests.calibration import Calibration, TrialResult
from remanence.requests.criterion import Criterion
from remanence.requests.routing import lasted

_SIMILAR = 8
"""Number of calibration sets, the nearest in difficulty, that tell how often a method succeeds."""


@dataclass(frozen=True)
class MethodForecast:
    """What a request is expected to cost with one method.

    Args:
        method: the method.
        forecast: steps to unlearn.
        success: probability that the criterion is reached and the examples stay forgotten after three epochs on
            retained data, from the calibration sets nearest in difficulty; None without a calibration.
        cost: expected steps, where a failure costs a retraining.
    """

    method: str
    forecast: Forecast
    success: float | None
    cost: float

    def document(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "steps": self.forecast.steps,
            "success": self.success,
            "expected_steps_with_failures": self.cost,
        }


def calibrated_forecast(calibration: Calibration, difficulty: Difficulty) -> MethodForecast:
    """The calibrated method for a set of this difficulty.

    Its cost is its forecast, plus the steps of a retraining times the probability that it fails.
    """
    forecast = calibration.forecaster.forecast(difficulty)
    success = _success(calibration.tried, difficulty)
    cost = forecast.steps + (1 - success) * calibration.retraining["steps"]
    return MethodForecast(calibration.method, forecast, success, cost)


def _success(trials: Sequence[TrialResult], difficulty: Difficulty) -> float:
    """The share of the nearest sets that was forgotten and stayed so, with one success and one failure added."""
    nearest = sorted(trials, key=lambda trial: _distance(trial.run.difficulty, difficulty))[:_SIMILAR]
    passed = sum(map(lasted, nearest))
    return (passed + 1) / (len(nearest) + 2)


def _distance(one: Difficulty, other: Difficulty) -> float:
    """Mean difference of the logarithms of the losses, over all summaries."""
    losses = ([difficulty.losses[name] for name in sorted(one.losses)] for difficulty in (one, other))
    logs = [np.log(np.maximum(values, np.finfo(float).tiny)) for values in losses]
    return float(np.abs(logs[0] - logs[1]).mean())


def came_back(criterion: Criterion, value: float) -> bool:
    """Whether the log-odds after further training on retained data show membership again.

    They may be above the expected ones by twice what the criterion tolerates: unlearning may have stopped at its edge,
    and two models that never saw the examples differ by as much again.
    """
    return value > criterion.target + 2 * criterion.tolerance + 1e-9


def why(candidates: Sequence[MethodForecast]) -> str:
    """The choice in one sentence."""
    best, *others = (f"{candidate.method} ({candidate.forecast.steps:.0f} steps)" for candidate in candidates)
    return f"{best}: the fewest steps by laws measured on another run; instead of {', '.join(others)}."
