"""Which examples of a request are unlearned how: the losses that part easy, middle and hard examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.forecast import NOTHING
from remanence.requests.calibration import LEVEL_METHODS, ROUTED, TrialResult
from remanence.requests.calibration_sets import LEVEL
from remanence.requests.verdict import can_be_judged
from remanence.types import Ids, Scores, positions_of
from remanence.unlearning import FoldTargets

_SUMMARY = "median"
_DRAWN = "out_of_fold"
_BEYOND_CHANCE = 2.0
"""Standard errors by which another way of drawing weights anew must be cheaper."""
_TOLERATED = 0.05
"""Share of wrong answers by models never trained on the examples from which examples count as hard: five points, what
an audit of the error tolerates."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Routing:
    """The choice for each difficulty.

    Args:
        easy: examples with a smaller privacy loss need nothing: sets of them looked forgotten before unlearning.
        hard: from this privacy loss on, weights are drawn anew; None if they never are.
        harder: how weights are drawn anew.
    """

    easy: float
    hard: float | None
    harder: str

    def options(self) -> dict[str, Any]:
        """The hyperparameters of the method `routed`."""
        return {"easy": self.easy, "harder": self.harder} | ({} if self.hard is None else {"hard": self.hard})


def hard_from(targets: FoldTargets) -> float | None:
    """The privacy loss from which models never trained on an example get it wrong too often to be followed.

    Where they are right, only less sure than the model, their outputs can be approached in a few steps. Where they are
    wrong, a model that follows them has to learn a wrong answer for each example, which is memory again. The share of
    wrong answers that grows with the loss and fits all models and examples best (isotonic regression) passes what an
    audit tolerates here.

    Args:
        targets: what models say about the examples that they never saw, with the privacy losses of these.
    """
    assert targets.losses is not None  # a calibration has them
    order = np.argsort(targets.losses, kind="stable")
    wrong, models = targets.wrong_answers()
    first = _first_above(wrong[order], models[order], _TOLERATED)
    return None if first == len(order) else float(targets.losses[order[first]])


def choose_routing(trials: Sequence[TrialResult], retraining: float, hard: float | None) -> Routing:
    """The losses that part examples, from calibration sets of one difficulty each.

    Below `hard`, examples are drawn towards outputs, unless most sets from some difficulty on were not forgotten so or
    did not stay so: then weights are drawn anew from there on. A single set decides nothing, and neither do steps:
    outputs are approached without a loss of accuracy.

    Args:
        trials: the sets of one difficulty each.
        retraining: the steps of a retraining.
        hard: the privacy loss from which weights are drawn anew in any case; None if there is none.
    """
    levels = _levels(trials)
    harder = _harder({method: _costs(level, retraining) for method, level in levels.items()})
    known = sorted(
        {trial.run.difficulty.losses[_SUMMARY]: trial for level in levels.values() for trial in level}.items()
    )
    losses = np.array([loss for loss, _ in known])
    done = [trial.run.difficulty.done for _, trial in known]
    n_easy = next((i for i, looks_forgotten in enumerate(done) if not looks_forgotten), len(done))
    easy = _between(losses, n_easy)
    if _DRAWN not in levels:
        return Routing(easy, easy, harder)
    drawn = levels[_DRAWN]
    failed = np.array([not lasted(trial) for trial in drawn], np.float64)
    first = _first_above(failed, np.ones(len(failed)), 0.5)
    by_trials = np.inf if first == len(drawn) else _between(_losses(drawn), first)
    lowest = max(easy, min(by_trials, np.inf if hard is None else hard))
    return Routing(easy, float(lowest) if np.isfinite(lowest) else None, harder)


def _first_above(shares: Floats, weights: Floats, limit: float) -> int:
    """The first position at which the isotonic regression of these shares is above the limit, or their number.

    It is where the sum of weight · (share − limit) over all positions before it is smallest, the last if there are
    several.
    """
    before = np.concatenate([[0.0], np.cumsum(weights * (shares - limit))])
    return len(shares) - int(np.argmin(before[::-1]))


def needs_nothing(method: str, error: float, size: int, *, done: bool) -> bool:
    """Whether a set is left alone: it is no better known than to models never trained on it, and that can be judged.

    Args:
        method: the method; only `routed` can leave a set alone.
        error: standard error of the excess of the set.
        size: number of examples.
        done: whether the criterion holds before unlearning.
    """
    return method == ROUTED and done and can_be_judged(error, size)


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


def _costs(level: Sequence[TrialResult], retraining: float) -> dict[float, float]:
    """By the loss of a set, its steps, and those of a retraining if it was not forgotten or did not stay so."""
    return {
        trial.run.difficulty.losses[_SUMMARY]: trial.run.steps + (0.0 if lasted(trial) else retraining)
        for trial in level
    }


def _harder(costs: Mapping[str, Mapping[float, float]]) -> str:
    """How weights are drawn anew: by `reset`, which changes fewer of them, unless another way is cheaper beyond chance.

    Compared over all levels, since most of the steps win back accuracy, which takes as long at every difficulty.
    """
    best, *others = (method for method in LEVEL_METHODS if method in costs and method != _DRAWN)
    for other in others:
        both = sorted(costs[best].keys() & costs[other].keys())
        ratios = np.log([(1 + costs[other][loss]) / (1 + costs[best][loss]) for loss in both])
        error = ratios.std(ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else np.inf
        if ratios.mean() < -_BEYOND_CHANCE * error:
            best = other
    return best


def lasted(trial: TrialResult) -> bool:
    """Whether a set was forgotten and stayed so."""
    return trial.run.reached and trial.stays is not False


def _between(losses: NDArray[np.float64], first: int) -> float:
    """The loss halfway, on the logarithmic scale, between a level and the one below it; 0 below all levels."""
    if first == 0:
        return 0.0
    above = losses[first] if first < len(losses) else losses[-1]
    return float(np.sqrt(losses[first - 1] * above))


def way_of(method: str, options: Mapping[str, Any], losses: Scores, ids: Ids) -> str:
    """What is done to a set: the name of a way for `routed`, whose steps differ by it; empty for any other method.

    Args:
        method: the method.
        options: its hyperparameters for this set.
        losses: the privacy losses of all examples.
        ids: the examples of the set.
    """
    if method != ROUTED:
        return ""
    _, drawn, anew = _counts(options, losses, ids)
    return options["harder"] if anew else _DRAWN if drawn else NOTHING


def _counts(options: Mapping[str, Any], losses: Scores, ids: Ids) -> tuple[int, int, int]:
    """How many examples need nothing, are drawn towards outputs, and get new weights."""
    own = losses.values[positions_of(ids, losses.ids, what="the trace")]
    easy, hard = options["easy"], options.get("hard")
    from_hard = own >= (np.inf if hard is None else hard)
    needs_none = (own < easy) & ~from_hard
    return int(needs_none.sum()), int((~needs_none & ~from_hard).sum()), int(from_hard.sum())


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
    easy, hard, harder = options["easy"], options.get("hard"), options["harder"]
    above = np.inf if hard is None else hard
    counts = _counts(options, losses, ids)
    levels = _levels(trials)
    from_here = "" if hard is None else f" from a loss of {hard:.3g} on"
    parts = [
        f"{counts[0]} with a privacy loss below {easy:.3g} need nothing (calibration sets of such examples looked "
        "forgotten before unlearning)",
        f"{counts[1]} are drawn towards outputs of models that never saw them "
        f"({_record(levels.get(_DRAWN, []), easy, above)})",
        f"for {counts[2]}{from_here}, weights are drawn anew by {harder}, since models that never saw such examples "
        f"get more than {_TOLERATED:.0%} of them wrong, or outputs did not last "
        f"({_record(levels.get(harder, []), above, np.inf)})",
    ]
    chosen = [part for part, count in zip(parts, counts, strict=True) if count]
    return f"Of {len(ids)} examples, " + "; ".join(chosen) + "."


def _record(level: Sequence[TrialResult], low: float, high: float) -> str:
    """How sets of this difficulty fared in the calibration."""
    tried = [trial for trial in level if low <= trial.run.difficulty.losses[_SUMMARY] < high]
    if not tried:
        return "no calibration set of such examples"
    steps = float(np.median([trial.run.steps for trial in tried]))
    return f"{sum(map(lasted, tried))} of {len(tried)} calibration sets were forgotten and stayed so, {steps:.0f} steps"
