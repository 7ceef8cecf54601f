"""The folds of the reference pool: which examples each reference model is trained without."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError

SHARE = 0.1
"""The share of each class that an ordinary fold of a large pool leaves out."""
FEWEST = 8
"""With fewer models, ordinary folds would leave out more than half of the data."""
LARGE = 20
"""From this many models on, ordinary folds of a tenth leave out every example at least twice."""
_HEAVY_FOLDS = 4


def assign_folds(
    labels: NDArray[np.int64], models: int, *, seed: int, losses: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """[models, n] which model leaves out which example.

    Each class is assigned on its own. Four models leave out a large part of it, so that the pool also represents
    models to which a class is nearly unknown: two leave out one half each, and two leave out three quarters. All other
    models leave out a tenth, such that all examples of the class are left out equally often. The classes take turns
    in their four models.

    A small pool has larger folds, such that every example is still left out by two ordinary models. Its first folds are
    blocks of equal difficulty: hard examples leave together, as they do in a request that consists of them.

    Args:
        labels: the class of each example.
        models: number of models.
        seed: random seed of the folds.
        losses: the privacy loss of each example, for the blocks of a small pool; random folds by default.
    """
    if models < FEWEST:
        raise InputError(f"`models` must be at least {FEWEST}; got {models}.")
    rng = np.random.default_rng(seed)
    left_out = np.zeros((models, len(labels)), bool)
    small = models < LARGE
    share = 2 / (models - _HEAVY_FOLDS) if small else SHARE
    for position, label in enumerate(np.unique(labels)):
        members = rng.permutation(np.flatnonzero(labels == label))
        heavy = [(_HEAVY_FOLDS * position + turn) % models for turn in range(_HEAVY_FOLDS)]
        for model, part in zip(heavy, _heavy_folds(members), strict=True):
            left_out[model, part] = True
        light = np.setdiff1d(np.arange(models), heavy)
        size = max(1, math.ceil(share * len(members)) if small else round(share * len(members)))
        blocks = members[np.argsort(losses[members], kind="stable")] if small and losses is not None else None
        _assign_light_folds(left_out, members, light, size, rng, blocks)
    return left_out


def _heavy_folds(members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Two halves, and two times three quarters that together cover the class."""
    first, second, third, fourth = np.array_split(members, 4)
    return [
        np.concatenate([first, second]),
        np.concatenate([third, fourth]),
        np.concatenate([first, second, third]),
        np.concatenate([fourth, first, second]),
    ]


def _assign_light_folds(
    left_out: NDArray[np.bool_],
    members: NDArray[np.int64],
    models: NDArray[np.int64],
    size: int,
    rng: np.random.Generator,
    first: NDArray[np.int64] | None = None,
) -> None:
    """Deal out the members of a class, `size` to each model; in the order of `first` in the first round."""
    queue: list[int] = [] if first is None else first.tolist()
    for model in models:
        if len(queue) < size:
            # the rest of the last round comes first, so that counts stay equal; no example twice in one model
            queue += [member for member in rng.permutation(members).tolist() if member not in queue]
        left_out[model, queue[:size]] = True
        queue = queue[size:]
