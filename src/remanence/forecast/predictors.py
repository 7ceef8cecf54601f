"""Predictors of the steps to unlearn: the law, and simple baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.forecast.conformal import LeaveOneOut
from remanence.forecast.difficulty import SUMMARIES, CalibrationRun, Difficulty
from remanence.forecast.law import fit_law

Predictor = Callable[[Difficulty], float]
Fit = Callable[[Sequence[CalibrationRun]], Predictor]
"""Fits a predictor on calibration runs."""
_FEWEST = 5


def law_of(summary: str) -> Fit:
    """k = A ln(B P + C) with this summary of the privacy losses as P; 0 for a set that takes no steps.

    One law for each way of unlearning; with fewer than five sets, the median of their steps. A way that no set was
    unlearned by is forecast from all sets that take steps, or from all if these are too few.
    """

    def fit(runs: Sequence[CalibrationRun]) -> Predictor:
        remaining = [run for run in runs if not run.difficulty.no_steps]
        by_way: dict[str, list[CalibrationRun]] = {}
        for run in remaining:
            by_way.setdefault(run.difficulty.way, []).append(run)
        every = one_law(remaining if len(remaining) >= _FEWEST else runs)
        own = {
            way: every
            if len(same) == len(remaining)
            else (one_law if len(same) >= _FEWEST else constant)(same)
            for way, same in by_way.items()
        }

        def predict(difficulty: Difficulty) -> float:
            return 0.0 if difficulty.no_steps else own.get(difficulty.way, every)(difficulty)

        return predict

    def one_law(runs: Sequence[CalibrationRun]) -> Predictor:
        law = fit_law(
            [run.difficulty.losses[summary] for run in runs],
            [run.steps for run in runs],
            [run.reached for run in runs],
        )
        return lambda difficulty: float(law(difficulty.losses[summary]))

    return fit


def constant(runs: Sequence[CalibrationRun]) -> Predictor:
    """The median of the steps, for every set."""
    median = float(np.median([run.steps for run in runs]))
    return lambda difficulty: median


def proxies(runs: Sequence[CalibrationRun]) -> Predictor:
    """Linear regression on the mean of the standardized proxies, signed such that larger values mean more steps."""
    names = sorted(runs[0].difficulty.proxies)
    if not names:
        return constant(runs)
    values = np.array([[run.difficulty.proxies[name] for name in names] for run in runs])
    steps = np.array([run.steps for run in runs])
    centre, scale = values.mean(0), values.std(0)
    scale[scale == 0] = 1.0
    standard = (values - centre) / scale
    signs = np.sign(standard.T @ (steps - steps.mean()))
    mean = standard @ signs / len(names)
    slope = float(mean @ (steps - steps.mean()) / max(mean @ mean, 1e-300))

    def predict(difficulty: Difficulty) -> float:
        own = (np.array([difficulty.proxies[name] for name in names]) - centre) / scale
        return max(0.0, float(steps.mean() + slope * (own @ signs / len(names))))

    return predict


LAWS: dict[str, Fit] = {f"law, {summary} loss": law_of(summary) for summary in SUMMARIES}
CHOSEN = "law, chosen"
"""The law that a forecaster uses: the choice between the others is part of it."""


def choose_law(runs: Sequence[CalibrationRun]) -> tuple[str, Predictor]:
    """The law with the summary of the losses that fits these runs best, and its name.

    All have as many constants, so their errors on the runs that they were fitted on can be compared.
    """
    fitted = {name: fit(runs) for name, fit in LAWS.items()}
    errors = {
        name: float(errors_of(predictions([predict] * len(runs), runs)).mean())
        for name, predict in fitted.items()
    }
    best = min(errors, key=errors.__getitem__)
    return best, fitted[best]


def best_law(runs: Sequence[CalibrationRun]) -> Predictor:
    """The law of `choose_law`: a fit that contains the choice, so that a run that is left out is left out of both."""
    return choose_law(runs)[1]


def fit_without_each(fit: Fit, runs: Sequence[CalibrationRun]) -> list[Predictor]:
    """For each run, the predictor fitted on all others."""
    return [fit([*runs[:i], *runs[i + 1 :]]) for i in range(len(runs))]


def leave_one_out(fit: Fit, runs: Sequence[CalibrationRun], new: Difficulty | None = None) -> LeaveOneOut:
    """The prediction for each run (and for a new set) by the predictor fitted without that run."""
    return predictions(fit_without_each(fit, runs), runs, new)


def predictions(
    fitted: Sequence[Predictor], runs: Sequence[CalibrationRun], new: Difficulty | None = None
) -> LeaveOneOut:
    """The prediction of each run, and of a new set, by the predictor in its place."""
    own = np.array([predict(run.difficulty) for predict, run in zip(fitted, runs, strict=True)])
    return LeaveOneOut(
        own=own,
        new=own if new is None else np.array([predict(new) for predict in fitted]),
        steps=np.array([run.steps for run in runs], dtype=np.float64),
        reached=np.array([run.reached for run in runs], dtype=bool),
    )


@dataclass(frozen=True)
class Comparison:
    """Leave-one-out errors of a predictor, in steps."""

    predictor: str
    median_error: float
    mean_error: float


def errors_of(held_out: LeaveOneOut) -> NDArray[np.float64]:
    """Absolute errors in steps; for a censored set, by how much the prediction is below the time of censoring."""
    errors = held_out.own - held_out.steps
    return np.where(held_out.reached, np.abs(errors), np.maximum(0.0, -errors))


def compare(runs: Sequence[CalibrationRun]) -> list[Comparison]:
    """Leave-one-out errors of every predictor, among them the law that is chosen anew without each run."""
    predictors: dict[str, Fit] = {
        CHOSEN: best_law,
        **LAWS,
        "mean of the proxies": proxies,
        "constant": constant,
    }
    table = []
    for name, fit in predictors.items():
        errors = errors_of(leave_one_out(fit, runs))
        table.append(Comparison(name, float(np.median(errors)), float(errors.mean())))
    return table
