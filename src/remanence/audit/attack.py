"""A membership attack by one number an example: cross-fitted, balanced, the same every time."""

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
class Attack:
    """What came of it.

    Args:
        called_outsider: share of the targets that the attackers take for examples never trained on.
        accuracy: share of the attacker's own examples, as many members as outsiders, that it gets right in the fold
            that it was not fitted on. One half means that it can tell nothing.
        calls: [targets] for each of them, the share of the attackers that do.
    """

    called_outsider: float
    accuracy: float
    calls: Floats = field(compare=False, repr=False)


def attack(members: Floats, outsiders: Floats, targets: Floats, *, folds: int = FOLDS) -> Attack:
    """Learn to tell members from outsiders by a signal, and ask about the targets.

    As many members as outsiders are drawn (the smaller number of the two, by a fixed seed) and dealt into `folds`
    folds, equally many of each in every one. For each fold a logistic regression, with scikit-learn's default penalty,
    is fitted on all the others. Its accuracy is taken on its own fold. Every fitted attacker calls all the targets; the
    mean of their shares is reported.

    Args:
        members: the signal of examples that were trained on and stay.
        outsiders: of examples that were not.
        targets: of those in question.
        folds: how many; fewer where there are fewer examples.
    """
    signals = [np.asarray(each, dtype=np.float64) for each in (members, outsiders, targets)]
    if not all(np.isfinite(each).all() for each in signals):
        raise NumericalError("The model's outputs are not finite; a membership attack on them means nothing.")
    size = min(len(members), len(outsiders))
    folds = min(folds, size)
    if folds < 2 or not len(targets):
        raise InputError(
            f"A membership attack needs two retain and two test examples and someone to ask about; "
            f"got {len(members)}, {len(outsiders)} and {len(targets)}."
        )
    ours, theirs, own = _dealt(len(members), len(outsiders), folds)
    chosen = np.concatenate([signals[0][ours], signals[1][theirs]])
    truth = np.repeat([0.0, 1.0], size)
    fitted = np.stack(_fit(chosen, truth, ~own))
    right = np.asarray((_scores(fitted, chosen) > 0) == (truth > 0))
    called = _scores(fitted, signals[2]) > 0
    return Attack(float(called.mean()), float(right[own].mean()), called.mean(axis=0))


@lru_cache(maxsize=8)
def _dealt(
    members: int, outsiders: int, folds: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Who is drawn of either, and [folds, drawn] who is in which fold; the same for every signal."""
    draw, size = np.random.default_rng(_SEED), min(members, outsiders)
    ours, theirs = (draw.permutation(count)[:size] for count in (members, outsiders))
    return ours, theirs, np.tile(np.arange(size) % folds, 2) == np.arange(folds)[:, None]


def _fit(signal: Floats, truth: Floats, used: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """One logistic regression a row of `used`: minimise slope²/2 plus the sum of the log-losses, all rows at once.

    The fit on everything is close to each fold's and is where those start; their first step looks at every example once
    for all folds.
    """
    everything = np.atleast_2d(np.any(used, axis=0))
    start = _minimise(np.zeros((2, 1)), signal, truth, everything)
    slopes, offsets = _minimise(start, signal, truth, used)
    return slopes, offsets


def _minimise(start: Floats, signal: Floats, truth: Floats, used: NDArray[np.bool_]) -> Floats:
    """Slopes and offsets: mostly a few plain Newton steps away; where not, steps are halved until they help.

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
    """Newton's method with steps that never go up."""
    value = _objective(point, signal, truth, used)
    for _ in range(_ROUNDS):
        step = _newton_step(point, signal, truth, used)
        length = np.ones(len(used))
        while True:
            tried = point + length * step
            reached = _objective(tried, signal, truth, used)
            worse = reached > value + 1e-12 * np.abs(value)
            if not worse.any() or length.min() < 1e-8:
                break
            length = np.where(worse, length / 2, length)
        point, value = np.where(worse, point, tried), np.where(worse, value, reached)
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
    """One step for every row of `used`, from a point of its own or from one for all.

    From one for all, third derivatives are cheap: Chebyshev's correction then leaves so little that one step follows.
    """
    likely = np.tanh(0.5 * _scores(point, signal))
    likely += 1
    likely *= 0.5
    square = np.square(signal)
    powers = np.stack([np.ones_like(signal), signal, square, square * signal], axis=1)
    sums = (((likely - truth) * used) @ powers[:, :2]).T
    variance = likely - np.square(likely)
    c, b, a = ((variance * used) @ powers[:, :3]).T
    a = a + 1.0
    step = _solved(a, b, c, sums[1] + point[0], sums[0])
    if point.shape[1] == 1 < len(used):
        m = ((variance * (1 - 2 * likely) * used) @ powers).T
        slope, offset = step
        bend = [slope**2 * m[k + 2] + 2 * slope * offset * m[k + 1] + offset**2 * m[k] for k in (1, 0)]
        step = step + 0.5 * _solved(a, b, c, *bend)
    return step


def _solved(a: Floats, b: Floats, c: Floats, slope: Floats, offset: Floats) -> Floats:
    """Minus the inverse of the second derivatives (a, b; b, c) times a gradient."""
    determinant = np.maximum(a * c - b * b, 1e-300)
    return np.asarray(-np.stack([c * slope - b * offset, a * offset - b * slope]) / determinant)


def _scores(point: Floats, signal: Floats) -> Floats:
    """[rows, examples]; above 0 the attacker says outsider."""
    return np.asarray(point[0][:, None] * signal + point[1][:, None])
