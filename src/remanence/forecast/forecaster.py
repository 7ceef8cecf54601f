"""Forecast the steps to unlearn a set, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remanence.errors import InputError
from remanence.forecast.conformal import LeaveOneOut, fewest, guaranteed_coverage, jackknife_interval
from remanence.forecast.difficulty import CalibrationRun, Difficulty
from remanence.forecast.predictors import best_law, choose_law, fit_without_each, leave_one_out, predictions

ENOUGH = 20
"""The smallest number of calibration runs; with fewer, an interval of 90 % is infinite or unreliable."""


@dataclass(frozen=True)
class Forecast:
    """How long unlearning is expected to take: the steps until a set is forgotten or the budget ends.

    Args:
        steps: point forecast.
        low: lower end of the interval.
        high: upper end, at most the budget: a set that is not forgotten by then is retrained.
        coverage: nominal probability of the interval, about what is observed.
        guaranteed: probability that is guaranteed for it (jackknife+), 80 % for a nominal 90 %.
        beyond: in which respects the set is outside the calibrated range.
    """

    steps: float
    low: float
    high: float
    coverage: float
    guaranteed: float
    beyond: tuple[str, ...] = ()


class Forecaster:
    """The law, fitted on calibration runs.

    Args:
        runs: the calibration runs.
        budget: the most steps that they were given, and that a new set is given.
    """

    def __init__(self, runs: Sequence[CalibrationRun], budget: float) -> None:
        if len(runs) < ENOUGH:
            raise InputError(
                f"A forecast needs at least {ENOUGH} calibration runs; got {len(runs)}. "
                "`remanence calibrate` makes them."
            )
        self.runs, self.budget = tuple(runs), budget
        self.law, self._predict = choose_law(self.runs)
        self._without_each = fit_without_each(best_law, self.runs)

    def forecast(self, difficulty: Difficulty, coverage: float = 0.9) -> Forecast:
        """The forecast for a set of this difficulty.

        The interval is taken from comparable calibration sets; from all of them when these are too few.
        The choice of the law is made anew without each set, as jackknife+ requires.
        """
        held_out = predictions(self._without_each, self.runs, difficulty)
        steps = min(self._predict(difficulty), self.budget)
        low, high = self._interval(held_out, self.runs, difficulty, coverage)
        return Forecast(
            steps,
            min(low, steps),
            max(high, steps),
            coverage,
            guaranteed_coverage(coverage),
            self._beyond(difficulty),
        )

    def observed_coverage(self, coverage: float = 0.9) -> float:
        """The share of the calibration runs that lie in the interval forecast from all the others.

        A run that did not reach the criterion took the whole budget.
        """
        inside = []
        for i, run in enumerate(self.runs):
            others = [*self.runs[:i], *self.runs[i + 1 :]]
            held_out = leave_one_out(best_law, others, run.difficulty)
            low, high = self._interval(held_out, others, run.difficulty, coverage)
            steps = min(self._without_each[i](run.difficulty), self.budget)
            inside.append(min(low, steps) <= run.steps <= max(high, steps))
        return sum(inside) / len(inside)

    def _interval(
        self, held_out: LeaveOneOut, runs: Sequence[CalibrationRun], difficulty: Difficulty, coverage: float
    ) -> tuple[float, float]:
        """From the comparable runs; from all of them when these are too few."""
        alike = [run.difficulty.comparable(difficulty) for run in runs]
        used = held_out.only(alike) if sum(alike) >= fewest(coverage) else held_out
        low, high = jackknife_interval(used.within(self.budget), coverage)
        return low, min(high, self.budget)

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
