"""Forecast the steps to unlearn a set, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remanence.errors import InputError
from remanence.forecast.conformal import fewest, jackknife_interval
from remanence.forecast.difficulty import CalibrationRun, Difficulty
from remanence.forecast.predictors import LAWS, errors_of, leave_one_out

ENOUGH = 20
"""The smallest number of calibration runs; with fewer, an interval of 90 % is infinite or unreliable."""


@dataclass(frozen=True)
class Forecast:
    """How long unlearning is expected to take.

    Args:
        steps: point forecast.
        low: lower end of the interval.
        high: upper end; may be infinite.
        coverage: probability of the interval.
        beyond: in which respects the set is outside the calibrated range.
    """

    steps: float
    low: float
    high: float
    coverage: float
    beyond: tuple[str, ...] = ()


class Forecaster:
    """The law, fitted on calibration runs."""

    def __init__(self, runs: Sequence[CalibrationRun]) -> None:
        if len(runs) < ENOUGH:
            raise InputError(
                f"A forecast needs at least {ENOUGH} calibration runs; got {len(runs)}. "
                "`remanence calibrate` makes them."
            )
        self.runs = tuple(runs)
        errors = {name: float(errors_of(leave_one_out(fit, runs)).mean()) for name, fit in LAWS.items()}
        self.law = min(errors, key=errors.__getitem__)
        """The law with the best summary of the losses, by leave-one-out."""
        self._predict = LAWS[self.law](self.runs)

    def forecast(self, difficulty: Difficulty, coverage: float = 0.9) -> Forecast:
        """The forecast for a set of this difficulty.

        The interval is taken from calibration sets with the same value of `done`; from all sets when these are too few.
        """
        held_out = leave_one_out(LAWS[self.law], self.runs, difficulty)
        alike = [run.difficulty.done == difficulty.done for run in self.runs]
        if sum(alike) >= fewest(coverage):
            held_out = held_out.only(alike)
        low, high = jackknife_interval(held_out, coverage)
        steps = self._predict(difficulty)
        return Forecast(steps, min(low, steps), max(high, steps), coverage, self._beyond(difficulty))

    def _beyond(self, difficulty: Difficulty) -> tuple[str, ...]:
        summary = self.law.removeprefix("law, ").removesuffix(" loss")
        losses = [run.difficulty.losses[summary] for run in self.runs]
        sizes = [float(run.difficulty.size) for run in self.runs]
        quantities = (
            ("privacy loss", losses, difficulty.losses[summary]),
            ("size", sizes, float(difficulty.size)),
        )
        return tuple(
            f"its {name}, {value:.3g}, is outside the calibrated range ({min(known):.3g} to {max(known):.3g})"
            for name, known, value in quantities
            if not min(known) <= value <= max(known)
        )
