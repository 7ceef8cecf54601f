"""Ways to guess the steps of a set from those of others: the law, and simpler ones to beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.forecast.calibration import SUMMARIES, CalibrationRun, Difficulty
from remanence.forecast.conformal import LeftOut
from remanence.forecast.law import fit_law

Predictor = Callable[[Difficulty], float]
Fit = Callable[[Sequence[CalibrationRun]], Predictor]
"""Calibration runs in, a predictor out."""
_FEWEST = 5


def law_of(summary: str) -> Fit:
    """k = A ln(B P + C), P being this summary of the set's privacy losses; 0 where there is nothing to do.

    Fitted on the sets that there was something to do about, unless they are too few.
    """

    def fit(runs: Sequence[CalibrationRun]) -> Predictor:
        open_ones = [run for run in runs if not run.difficulty.done]
        used = open_ones if len(open_ones) >= _FEWEST else list(runs)
        law = fit_law(
            [run.difficulty.losses[summary] for run in used],
            [run.steps for run in used],
            [run.reached for run in used],
        )
        return lambda difficulty: 0.0 if difficulty.done else float(law(difficulty.losses[summary]))

    return fit


def constant(runs: Sequence[CalibrationRun]) -> Predictor:
    """The median of what was seen, whatever the set."""
    middle = float(np.median([run.steps for run in runs]))
    return lambda difficulty: middle


def proxies(runs: Sequence[CalibrationRun]) -> Predictor:
    """A straight line in the mean of the standardized proxies, each turned so that more means longer."""
    names = sorted(runs[0].difficulty.proxies)
    if not names:
        return constant(runs)
    values = np.array([[run.difficulty.proxies[name] for name in names] for run in runs])
    steps = np.array([run.steps for run in runs])
    centre, scale = values.mean(0), values.std(0)
    scale[scale == 0] = 1.0
    standard = (values - centre) / scale
    turn = np.sign(standard.T @ (steps - steps.mean()))
    mean = standard @ turn / len(names)
    slope = float(mean @ (steps - steps.mean()) / max(mean @ mean, 1e-300))

    def predict(difficulty: Difficulty) -> float:
        own = (np.array([difficulty.proxies[name] for name in names]) - centre) / scale
        return max(0.0, float(steps.mean() + slope * (own @ turn / len(names))))

    return predict


LAWS: dict[str, Fit] = {f"law, {summary} loss": law_of(summary) for summary in SUMMARIES}
PREDICTORS: dict[str, Fit] = {**LAWS, "mean of the proxies": proxies, "constant": constant}


def left_out(fit: Fit, runs: Sequence[CalibrationRun], new: Difficulty | None = None) -> LeftOut:
    """What predictors fitted without each run in turn say of it (and of a new set)."""
    fitted = [fit([*runs[:i], *runs[i + 1 :]]) for i in range(len(runs))]
    own = np.array([predict(run.difficulty) for predict, run in zip(fitted, runs, strict=True)])
    return LeftOut(
        own=own,
        new=own if new is None else np.array([predict(new) for predict in fitted]),
        steps=np.array([run.steps for run in runs], dtype=np.float64),
        reached=np.array([run.reached for run in runs], dtype=bool),
    )


@dataclass(frozen=True)
class Comparison:
    """How far off a predictor is on sets that it was not fitted on."""

    predictor: str
    median_error: float
    mean_error: float


def errors_of(held_out: LeftOut) -> NDArray[np.float64]:
    """Absolute errors in steps; a set never unlearned is off by what a prediction falls short of the time tried."""
    off = held_out.own - held_out.steps
    return np.where(held_out.reached, np.abs(off), np.maximum(0.0, -off))


def compare(runs: Sequence[CalibrationRun]) -> list[Comparison]:
    """Every predictor by leave-one-out, in the order of the registry."""
    table = []
    for name, fit in PREDICTORS.items():
        errors = errors_of(left_out(fit, runs))
        table.append(Comparison(name, float(np.median(errors)), float(errors.mean())))
    return table
