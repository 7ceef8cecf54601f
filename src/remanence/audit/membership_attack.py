"""A membership inference attack on one number per example: cross-fitted, balanced, deterministic."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError, NumericalError

FOLDS = 10
_SEED = 0
_ROUNDS = 100
_PLAIN_STEPS = 7
_CLOSE = 3e-4
"""Newton's error after a step is about the step's square."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AttackResult:
    """The result of a membership inference attack.

    Args:
        called_outsider: share of the targets that the attackers classify as never trained on.
        accuracy: balanced accuracy of the attackers on members and outsiders of the fold that they were not fitted on.
            One half is chance.
        calls: [targets] the share of the attackers that classify each target as never trained on.
    """

    called_outsider: float
    accuracy: float
    calls: Floats = field(compare=False, repr=False)


def membership_attack(
    members: Floats, outsiders: Floats, targets: Floats, *, folds: int = FOLDS
) -> AttackResult:
    """Fit classifiers of members against outsiders on a signal, and apply them to the targets.

    Equally many members and outsiders are drawn (the smaller number of the two, with a fixed seed) and divided into
    `folds` folds, equally many of each in every fold. For each fold a logistic regression, with scikit-learn's default
    penalty, is fitted on all the others and tested on this one. All fitted attackers classify the targets; the mean of
    their shares is reported.

    Args:
        members: the signal of examples that were trained on and stay.
        outsiders: the signal of examples that were not trained on.
        targets: the signal of the examples in question.
        folds: number of folds; fewer if there are fewer examples.
    """
    signals = [np.asarray(signal, dtype=np.float64) for signal in (members, outsiders, targets)]
    if not all(np.isfinite(signal).all() for signal in signals):
        raise NumericalError(
            "The model's outputs must be finite for a membership attack; they are not finite."
        )
    size = min(len(members), len(outsiders))
    folds = min(folds, size)
    if folds < 2 or not len(targets):
        raise InputError(
            f"A membership attack needs two retain and two test examples and at least one target; "
            f"got {len(members)}, {len(outsiders)} and {len(targets)}."
        )
    member_rows, outsider_rows, in_fold = _folds(len(members), len(outsiders), folds)
    chosen = np.concatenate([signals[0][member_rows], signals[1][outsider_rows]])
    truth = np.repeat([0.0, 1.0], size)
    fitted = np.stack(_fit(chosen, truth, ~in_fold))
    correct = np.asarray((_scores(fitted, chosen) > 0) == (truth > 0))
    called = _scores(fitted, signals[2]) > 0
    return AttackResult(float(called.mean()), float(correct[in_fold].mean()), called.mean(axis=0))


@lru_cache(maxsize=8)
def _folds(
    members: int, outsiders: int, folds: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Rows drawn of members and outsiders, and [folds, drawn] which is in which fold; the same for every signal."""
    rng, size = np.random.default_rng(_SEED), min(members, outsiders)
    member_rows, outsider_rows = (rng.permutation(count)[:size] for count in (members, outsiders))
    return member_rows, outsider_rows, np.tile(np.arange(size) % folds, 2) == np.arange(folds)[:, None]


def _fit(signal: Floats, truth: Floats, used: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """One logistic regression per row of `used`: minimize slope²/2 plus the sum of the log-losses, all rows at once.

    The fit on all examples is close to each fold's, so the folds start there; their first step then computes every
    example once for all folds.
    """
    everything = np.atleast_2d(np.any(used, axis=0))
    start = _minimize(np.zeros((2, 1)), signal, truth, everything)
    slopes, offsets = _minimize(start, signal, truth, used)
    return slopes, offsets


def _minimize(start: Floats, signal: Floats, truth: Floats, used: NDArray[np.bool_]) -> Floats:
    """Slopes and offsets: usually a few plain Newton steps; otherwise steps are halved until they improve.

    The sum is convex, and the penalty makes its minimum finite.
    """
    point = start
    for _ in range(_PLAIN_STEPS):
        step = _newton_step(point, signal, truth, used)
        point = point + step
        if not np.isfinite(point).all():
            break
        if _small(step, point).all():
            return point
    return _descend(np.broadcast_to(start, (2, len(used))), signal, truth, used)


def _descend(point: Floats, signal: Floats, truth: Floats, used: NDArray[np.bool_]) -> Floats:
    """Newton's method with steps that never increase the objective."""
    value = _objective(point, signal, truth, used)
    for _ in range(_ROUNDS):
        step = _newton_step(point, signal, truth, used)
        length = np.ones(len(used))
        while True:
            candidate = point + length * step
            reached = _objective(candidate, signal, truth, used)
            worse = reached > value + 1e-12 * np.abs(value)
            if not worse.any() or length.min() < 1e-8:
                break
            length = np.where(worse, length / 2, length)
        point, value = np.where(worse, point, candidate), np.where(worse, value, reached)
        if (_small(length * step, point) | worse).all():
            break
    return point


def _small(step: Floats, point: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.abs(step).max(axis=0) <= _CLOSE * (1 + np.abs(point).sum(axis=0)))


def _objective(point: Floats, signal: Floats, truth: Floats, used: NDArray[np.bool_]) -> Floats:
    score = _scores(point, signal)
    losses = np.logaddexp(0, score) - truth * score
    total: Floats = 0.5 * point[0] ** 2 + (losses * used).sum(axis=1)
    return total


def _newton_step(point: Floats, signal: Floats, truth: Floats, used: NDArray[np.bool_]) -> Floats:
    """One step for every row of `used`, from its own point or from a common one.

    From a common point, third derivatives are cheap: after Chebyshev's correction one more step is enough.
    """
    probability = np.tanh(0.5 * _scores(point, signal))
    probability += 1
    probability *= 0.5
    square = np.square(signal)
    powers = np.stack([np.ones_like(signal), signal, square, square * signal], axis=1)
    sums = (((probability - truth) * used) @ powers[:, :2]).T
    variance = probability - np.square(probability)
    c, b, a = ((variance * used) @ powers[:, :3]).T
    a = a + 1.0
    step = _solved(a, b, c, sums[1] + point[0], sums[0])
    if point.shape[1] == 1 < len(used):
        m = ((variance * (1 - 2 * probability) * used) @ powers).T
        slope, offset = step
        bend = [slope**2 * m[k + 2] + 2 * slope * offset * m[k + 1] + offset**2 * m[k] for k in (1, 0)]
        step = step + 0.5 * _solved(a, b, c, *bend)
    return step


def _solved(a: Floats, b: Floats, c: Floats, slope: Floats, offset: Floats) -> Floats:
    """Minus the inverse of the second derivatives (a, b; b, c) times a gradient."""
    determinant = np.maximum(a * c - b * b, 1e-300)
    return np.asarray(-np.stack([c * slope - b * offset, a * offset - b * slope]) / determinant)


def _scores(point: Floats, signal: Floats) -> Floats:
    """[rows, examples]; above 0 the attacker predicts outsider."""
    return np.asarray(point[0][:, None] * signal + point[1][:, None])
