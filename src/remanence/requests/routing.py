"""Which examples of a request are unlearned how: the losses that part easy, middle and hard examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.audit import METRICS
from remanence.requests.calibration import LEVEL_METHODS, TrialResult
from remanence.requests.calibration_sets import LEVEL
from remanence.types import Ids, Scores, positions_of

_SUMMARY = "median"
_DRAWN = "out_of_fold"
_BEYOND_CHANCE = 2.0
"""Standard errors by which another way of drawing weights anew must be cheaper."""
AUDITED = ("ua", "mia_confidence")
"""Metrics of an audit that the results of methods are compared by; the first is the error on the examples."""


@dataclass(frozen=True)
class Routing:
    """The choice for each difficulty, from calibration sets of one difficulty each.

    Args:
        easy: examples with a smaller privacy loss need nothing: sets of them looked forgotten before unlearning.
        hard: from this privacy loss on, new weights cost less than targets; None if they never do.
        harder: how weights are drawn anew.
    """

    easy: float
    hard: float | None
    harder: str

    def options(self) -> dict[str, Any]:
        """The hyperparameters of the method `routed`."""
        return {"easy": self.easy, "harder": self.harder} | ({} if self.hard is None else {"hard": self.hard})


def choose_routing(trials: Sequence[TrialResult], retraining: float) -> Routing:
    """The losses with the smallest total cost over the calibration sets of one difficulty.

    The cost of a set is the steps that it took and, if it was not forgotten or did not stay so, a retraining. The same
    holds for a set that was drawn towards outputs and would not pass an audit: it differs from what methods show that
    draw weights anew and train on. Only these are independent of the reference models, which the outputs and the
    criterion come from.

    Args:
        trials: the sets of one difficulty each, by every method.
        retraining: the steps of a retraining.
    """
    levels = _levels(trials)
    methods = [method for method in LEVEL_METHODS if method in levels]
    losses = _losses(levels[methods[0]])
    costs = {method: _costs(levels[method], retraining) for method in methods}
    if _DRAWN in methods:
        costs[_DRAWN] += retraining * (_lasting(levels[_DRAWN]) & ~passes_audit(levels))
    harder = _harder(costs)
    firsts = range(len(losses) + 1 if _DRAWN in methods else 1)
    below = np.concatenate([[0.0], np.cumsum(costs.get(_DRAWN, np.zeros(len(losses))))])
    first = min(firsts, key=lambda first: (below[first] + costs[harder][first:].sum(), first))
    done = [trial.run.difficulty.done for trial in levels[methods[0]]]
    easy = next((i for i, looks_forgotten in enumerate(done) if not looks_forgotten), len(done))
    hard = _between(losses, max(first, easy)) if first < len(losses) else None
    return Routing(_between(losses, easy), hard, harder)


def without_work(options: Mapping[str, Any], losses: Scores, ids: Ids) -> dict[str, Any]:
    """The options of `routed` for a set that is no better known than to models never trained on it: all are easy.

    Without them, a single hard example would reset weights, which costs accuracy, where nothing can be measured.
    """
    own = losses.values[positions_of(ids, losses.ids, what="the trace")]
    easy = float(np.nextafter(max(own.max(), float(options["easy"])), np.inf))
    return {name: value for name, value in options.items() if name != "hard"} | {"easy": easy}


def _levels(trials: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    """The sets of one difficulty each by method, from easy to hard."""
    found: dict[str, list[TrialResult]] = {}
    for trial in trials:
        if trial.run.name.startswith(LEVEL):
            found.setdefault(trial.method, []).append(trial)
    return {
        method: sorted(own, key=lambda trial: trial.run.difficulty.losses[_SUMMARY])
        for method, own in found.items()
    }


def _losses(level: Sequence[TrialResult]) -> NDArray[np.float64]:
    return np.array([trial.run.difficulty.losses[_SUMMARY] for trial in level])


def _costs(level: Sequence[TrialResult], retraining: float) -> NDArray[np.float64]:
    return np.array([trial.run.steps + (0.0 if lasted(trial) else retraining) for trial in level])


def _harder(costs: Mapping[str, NDArray[np.float64]]) -> str:
    """How weights are drawn anew: by `reset`, which changes fewer of them, unless another way is cheaper beyond chance.

    Compared over all levels, since most of the steps win back accuracy, which takes as long at every difficulty.
    """
    best, *others = (method for method in LEVEL_METHODS if method in costs and method != _DRAWN)
    for other in others:
        ratios = np.log((1 + costs[other]) / (1 + costs[best]))
        error = ratios.std(ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else np.inf
        if ratios.mean() < -_BEYOND_CHANCE * error:
            best = other
    return best


def _lasting(level: Sequence[TrialResult]) -> NDArray[np.bool_]:
    return np.array([lasted(trial) for trial in level], bool)


def passes_audit(levels: Mapping[str, Sequence[TrialResult]]) -> NDArray[np.bool_]:
    """[levels] whether a set that was drawn towards outputs would pass an audit and the test of relearning.

    The other methods, after further training, stand for models never trained on the set. When unlearning stops, the
    metrics must be as close to theirs as an audit demands, and after further training the model must not make fewer
    errors than they do. The tolerance is that of the audit and the standard error of the difference, from how much the
    other methods differ between themselves. A set that no other method forgot is not compared.
    """
    drawn, methods = levels[_DRAWN], [method for method in levels if method != _DRAWN]
    if not methods:
        return np.ones(len(drawn), bool)
    stopped, later = (
        _metrics([getattr(trial, moment) for trial in drawn]) for moment in ("stopped", "later")
    )
    others = np.stack([_metrics([trial.later for trial in levels[method]]) for method in methods])
    models = np.isfinite(others).sum(axis=0)
    mean = np.nansum(others, axis=0) / np.maximum(models, 1)
    squares = np.nansum((others - mean) ** 2, axis=(0, 1))
    variance = squares / np.maximum((models - 1).clip(0).sum(axis=0), 1)
    tolerance = np.array([METRICS[name].tolerance for name in AUDITED]) + np.sqrt(
        variance * (1 + 1 / np.maximum(models, 1))
    )
    differs = np.abs(stopped - mean) > tolerance + 1e-9
    differs[:, 0] |= later[:, 0] < (mean - tolerance)[:, 0] - 1e-9
    passed: NDArray[np.bool_] = ~(differs & (models > 0)).any(axis=1)
    return passed


def _metrics(rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
    """[rows, metrics] the metrics of an audit, NaN where there are none."""
    return np.array([[row.get(name, np.nan) for name in AUDITED] for row in rows])


def lasted(trial: TrialResult) -> bool:
    """Whether a set was forgotten and stayed so."""
    return trial.run.reached and trial.stays is not False


def _between(losses: NDArray[np.float64], first: int) -> float:
    """The loss halfway, on the logarithmic scale, between a level and the one below it; 0 below all levels."""
    if first == 0:
        return 0.0
    above = losses[first] if first < len(losses) else losses[-1]
    return float(np.sqrt(losses[first - 1] * above))


def explain(
    options: Mapping[str, Any], trials: Sequence[TrialResult], losses: Scores, ids: NDArray[Any]
) -> str:
    """How many examples of a request are unlearned how, and why.

    Args:
        options: the hyperparameters of the method `routed`.
        trials: the trials of the calibration.
        losses: the privacy losses of all examples.
        ids: the examples of the request.
    """
    own = losses.values[positions_of(ids, losses.ids, what="the trace")]
    easy, hard, harder = options["easy"], options.get("hard"), options["harder"]
    above = np.inf if hard is None else hard
    counts = [int((own < easy).sum()), int(((own >= easy) & (own < above)).sum()), int((own >= above).sum())]
    levels = _levels(trials)
    from_here = "" if hard is None else f" from a loss of {hard:.3g} on"
    parts = [
        f"{counts[0]} with a privacy loss below {easy:.3g} need nothing (calibration sets of such examples looked "
        "forgotten before unlearning)",
        f"{counts[1]} are drawn towards outputs of models that never saw them "
        f"({_record(levels.get(_DRAWN, []), easy, above)})",
        f"for {counts[2]}{from_here}, weights are drawn anew by {harder} "
        f"({_record(levels.get(harder, []), above, np.inf)}; outputs alone: "
        f"{_record(levels.get(_DRAWN, []), above, np.inf)})",
    ]
    chosen = [part for part, count in zip(parts, counts, strict=True) if count]
    return f"Of {len(own)} examples, " + "; ".join(chosen) + "."


def _record(level: Sequence[TrialResult], low: float, high: float) -> str:
    """How sets of this difficulty fared in the calibration."""
    tried = [trial for trial in level if low <= trial.run.difficulty.losses[_SUMMARY] < high]
    if not tried:
        return "no calibration set of such examples"
    steps = float(np.median([trial.run.steps for trial in tried]))
    return f"{sum(map(lasted, tried))} of {len(tried)} calibration sets were forgotten and stayed so, {steps:.0f} steps"
