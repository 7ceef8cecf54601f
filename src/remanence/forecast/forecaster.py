"""Steps to unlearn a set, told beforehand, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remanence.errors import InputError
from remanence.forecast.calibration import CalibrationRun, Difficulty
from remanence.forecast.conformal import fewest, jackknife_interval
from remanence.forecast.predictors import LAWS, errors_of, left_out

ENOUGH = 20
"""Calibration runs below which an interval of 90 % would be the whole axis, or luck."""


@dataclass(frozen=True)
class Forecast:
    """How long unlearning is expected to take.

    Args:
        steps: the guess.
        low: lower end of the interval.
        high: upper end; infinite when calibration does not say.
        coverage: how probable it is that the interval holds.
        beyond: why this set lies outside of what was calibrated; empty when it lies inside.
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
        errors = {name: float(errors_of(left_out(fit, runs)).mean()) for name, fit in LAWS.items()}
        self.law = min(errors, key=errors.__getitem__)
        """Which summary of the losses serves best, by leave-one-out."""
        self._predict = LAWS[self.law](self.runs)

    def forecast(self, difficulty: Difficulty, coverage: float = 0.9) -> Forecast:
        """What to expect for a set of this difficulty.

        The interval is of sets like it, those that there was nothing to do about or those that there was; where they
        are too few to say anything, of all.
        """
        held_out = left_out(LAWS[self.law], self.runs, difficulty)
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
        asked = (
            ("privacy loss", losses, difficulty.losses[summary]),
            ("size", sizes, float(difficulty.size)),
        )
        return tuple(
            f"its {what}, {own:.3g}, lies outside of what was calibrated ({min(known):.3g} to {max(known):.3g})"
            for what, known, own in asked
            if not min(known) <= own <= max(known)
        )
