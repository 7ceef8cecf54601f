"""Forget sets from easy to hard, to measure how long unlearning takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.types import ForgetSet, Scores

Rows = NDArray[np.int64]
_KINDS = ("band", "mixture", "random", "hard", "band", "mixture", "class", "band")
LEVEL = "level"
"""Begins the names of sets of one difficulty each."""
_NEAR = 2
"""A band is drawn from this many times its size of neighbours in difficulty."""
_HARD = 3
"""A hard set is drawn from this many times its size of the hardest examples."""


def draw_calibration_sets(
    losses: Scores, labels: NDArray[np.int64], *, count: int, sizes: tuple[int, int], seed: int
) -> list[ForgetSet]:
    """Sets of random sizes between the two given ones, which take turns in the kinds of `DRAWS`."""
    _check(sizes, len(losses.ids))
    rng = np.random.default_rng((seed, *sizes))
    order = np.argsort(losses.values, kind="stable").astype(np.int64)
    sets = []
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        size = round(float(np.exp(rng.uniform(*np.log(sizes)))))
        rows = DRAWS[kind](rng, order, labels, size)
        sets.append(ForgetSet(f"{kind} {number}", losses.ids[rows], f"{len(rows)} for calibration"))
    return sets


def draw_levels(losses: Scores, *, count: int, size: int) -> list[ForgetSet]:
    """Sets of one difficulty each, evenly from the easiest to the hardest examples.

    A set holds all examples between two ranks of difficulty, as a request does that consists of hard examples: they
    leave together.

    Args:
        losses: the privacy losses of all examples.
        count: number of sets.
        size: size of each set, or less if there are too few examples.
    """
    order = np.argsort(losses.values, kind="stable")
    size = max(1, min(size, len(order) // (2 * count)))
    firsts = np.linspace(0, len(order) - size, count).astype(np.int64)
    return [
        ForgetSet(f"{LEVEL} {number}", losses.ids[order[first : first + size]], f"{size} for calibration")
        for number, first in enumerate(firsts)
    ]


def _check(sizes: tuple[int, int], n: int) -> None:
    if not 1 <= sizes[0] <= sizes[1] <= n // 4:
        raise InputError(
            f"`sizes` must be two increasing numbers between 1 and a quarter of the {n} examples; got {sizes}."
        )


def _random(rng: np.random.Generator, order: Rows, labels: Rows, size: int) -> Rows:
    return rng.choice(order, size, replace=False)


def _band(rng: np.random.Generator, order: Rows, labels: Rows, size: int) -> Rows:
    first = int(rng.uniform() * (len(order) - _NEAR * size))
    return rng.choice(order[first : first + _NEAR * size], size, replace=False)


def _hard(rng: np.random.Generator, order: Rows, labels: Rows, size: int) -> Rows:
    return rng.choice(order[-_HARD * size :], size, replace=False)


def _mixture(rng: np.random.Generator, order: Rows, labels: Rows, size: int) -> Rows:
    hard = round(size * rng.uniform())
    edge = len(order) - max(size, len(order) // 7)
    return np.concatenate(
        [rng.choice(order[edge:], hard, replace=False), rng.choice(order[:edge], size - hard, replace=False)]
    )


def _class(rng: np.random.Generator, order: Rows, labels: Rows, size: int) -> Rows:
    members = np.flatnonzero(labels == rng.choice(np.unique(labels))).astype(np.int64)
    return rng.choice(members, min(size, round(0.75 * len(members)) or 1), replace=False)


DRAWS: Mapping[str, Callable[[np.random.Generator, Rows, Rows, int], Rows]] = {
    "random": _random,
    "band": _band,
    "hard": _hard,
    "mixture": _mixture,
    "class": _class,
}
"""(generator, rows from easy to hard, labels, size) -> the rows of a set, by kind."""
