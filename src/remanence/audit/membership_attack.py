"""A membership inference attack on one number per example: cross-fitted, balanced, deterministic."""

from __future__ import annotations

import math
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
    drawn = _draw(len(members), len(outsiders), folds)
    chosen = np.concatenate([signals[0][drawn.members], signals[1][drawn.outsiders]])
    fitted = _fit(chosen, drawn.truth, drawn.used)
    slope, offset = fitted[:, drawn.fold]
    correct = (slope * chosen + offset > 0) == (drawn.truth > 0)
    calls = (_scores(fitted, signals[2]) > 0).mean(axis=0)
    return AttackResult(float(calls.mean()), float(np.count_nonzero(correct)) / (2 * size), calls)


@dataclass(frozen=True)
class _Drawn:
    """Rows of members and outsiders, and their folds.

    Args:
        members: rows of the members.
        outsiders: rows of as many outsiders.
        truth: [examples] 0 for members, 1 for outsiders.
        fold: [examples] the fold of each, whose attacker is tested on it.
        used: [folds, examples] 1 where the example is not in the fold, so that the fold's attacker is fitted on it.
    """

    members: NDArray[np.int64]
    outsiders: NDArray[np.int64]
    truth: Floats
    fold: NDArray[np.int64]
    used: Floats


@lru_cache(maxsize=8)
def _draw(members: int, outsiders: int, folds: int) -> _Drawn:
    """The same draw for every signal."""
    rng, size = np.random.default_rng(_SEED), min(members, outsiders)
    member_rows, outsider_rows = (rng.permutation(count)[:size] for count in (members, outsiders))
    fold = np.tile(np.arange(size) % folds, 2)
    used = (fold != np.arange(folds)[:, None]).astype(np.float64)
    return _Drawn(member_rows, outsider_rows, np.repeat([0.0, 1.0], size), fold, used)


@dataclass(frozen=True)
class _Problem:
    """Logistic regressions of one truth on one signal, one for each row of `used`, which says which examples count.

    Minimized is slope²/2 plus the sum of the log-losses, for all rows at once. The sum is convex, and the penalty makes
    its minimum finite.

    Args:
        powers: [4, examples] powers of the signal, from 0 to 3.
        truth: [examples] 0 or 1.
        used: [regressions, examples] 0 or 1.
    """

    powers: Floats
    truth: Floats
    used: Floats

    @property
    def signal(self) -> Floats:
        return np.asarray(self.powers[1])


def _fit(signal: Floats, truth: Floats, used: Floats) -> Floats:
    """Slopes and offsets of one regression for each row of `used`.

    The fit on all examples is close to each fold's, so the folds start there.
    """
    square = signal * signal
    powers = np.stack([np.ones_like(signal), signal, square, square * signal])
    start = _fit_to_all(powers, truth)
    return _minimize(start, _Problem(powers, truth, used))


def _fit_to_all(powers: Floats, truth: Floats) -> Floats:
    """One regression on all examples; in plain numbers, which are faster than arrays of one number."""
    _, signal, square, _ = powers
    slope = offset = 0.0
    for _ in range(_PLAIN_STEPS):
        probability = _probability(slope * signal + offset)
        residual = probability - truth
        variance = probability - np.square(probability)
        a, b, c = float(variance @ square) + 1.0, float(variance @ signal), float(variance.sum())
        toward_slope, toward_offset = float(residual @ signal) + slope, float(residual.sum())
        determinant = max(a * c - b * b, 1e-300)
        change = (
            (b * toward_offset - c * toward_slope) / determinant,
            (b * toward_slope - a * toward_offset) / determinant,
        )
        slope, offset = slope + change[0], offset + change[1]
        if not math.isfinite(slope + offset):
            break
        if max(map(abs, change)) <= _CLOSE * (1 + abs(slope) + abs(offset)):
            return np.array([[slope], [offset]])
    return _descend(np.zeros((2, 1)), _Problem(powers, truth, np.ones((1, len(signal)))))


def _minimize(start: Floats, problem: _Problem) -> Floats:
    """Usually a few plain Newton steps; otherwise steps are halved until they improve."""
    point = start
    for _ in range(_PLAIN_STEPS):
        step = _common_step(point, problem) if point.shape[1] == 1 else _newton_step(point, problem)
        point = point + step
        if not np.isfinite(point).all():
            break
        if _small(step, point).all():
            return point
    return _descend(np.broadcast_to(start, (2, len(problem.used))), problem)


def _descend(point: Floats, problem: _Problem) -> Floats:
    """Newton's method with steps that never increase the objective."""
    value = _objective(point, problem)
    for _ in range(_ROUNDS):
        step = _newton_step(point, problem)
        length = np.ones(len(problem.used))
        while True:
            candidate = point + length * step
            reached = _objective(candidate, problem)
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


def _objective(point: Floats, problem: _Problem) -> Floats:
    score = _scores(point, problem.signal)
    losses = np.logaddexp(0, score) - problem.truth * score
    total: Floats = 0.5 * point[0] ** 2 + (losses * problem.used).sum(axis=1)
    return total


def _newton_step(point: Floats, problem: _Problem) -> Floats:
    """One step for every regression from its own point."""
    probability = _probability(_scores(point, problem.signal))
    sums = (((probability - problem.truth) * problem.used) @ problem.powers[:2].T).T
    variance = probability - np.square(probability)
    c, b, a = ((variance * problem.used) @ problem.powers[:3].T).T
    return _solved(a + 1.0, b, c, sums[1] + point[0], sums[0])


def _common_step(point: Floats, problem: _Problem) -> Floats:
    """One step for every regression from a common point, where every example is computed once for all.

    Third derivatives are cheap here: after Chebyshev's correction one more step is usually enough.
    """
    powers = problem.powers
    probability = _probability(point[0] * powers[1] + point[1])
    variance = probability - np.square(probability)
    skew = variance * (1 - 2 * probability)
    terms = np.concatenate([(probability - problem.truth) * powers[:2], variance * powers[:3], skew * powers])
    sums = terms @ problem.used.T
    (residual, moment), (c, b, a), m = sums[:2], sums[2:5], sums[5:]
    a = a + 1.0
    step = _solved(a, b, c, moment + point[0], residual)
    slope, offset = step
    bend = [slope**2 * m[k + 2] + 2 * slope * offset * m[k + 1] + offset**2 * m[k] for k in (1, 0)]
    return np.asarray(step + 0.5 * _solved(a, b, c, *bend))


def _probability(scores: Floats) -> Floats:
    half = np.tanh(0.5 * scores)
    half += 1
    half *= 0.5
    return np.asarray(half)


def _solved(a: Floats, b: Floats, c: Floats, slope: Floats, offset: Floats) -> Floats:
    """Minus the inverse of the second derivatives (a, b; b, c) times a gradient."""
    determinant = np.maximum(a * c - b * b, 1e-300)
    return np.asarray(-np.stack([c * slope - b * offset, a * offset - b * slope]) / determinant)


def _scores(point: Floats, signal: Floats) -> Floats:
    """[rows, examples]; above 0 the attacker predicts outsider."""
    return np.asarray(point[0][:, None] * signal + point[1][:, None])
