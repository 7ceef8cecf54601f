"""The folds of the reference pool: which examples each reference model is trained without."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError

FEWEST = 4
"""With fewer models, no example could be left out by two models that are trained on most of the data."""
SHARE = 0.1
"""The share of each class that an ordinary fold leaves out, or more if the pool is small."""
_BLOCKS = 4
_HEAVY_FOLDS = 4
Rows = NDArray[np.int64]


def assign_folds(
    labels: Rows, models: int, *, seed: int, losses: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """[models, n] which model leaves out which example; every example is left out by at least two.

    The first four models leave out blocks of equal difficulty, a quarter of each class: hard examples leave together,
    as they do in a request that consists of them. Of the other models, each class has four that leave out a large part
    of it, so that the pool also represents models to which a class is nearly unknown: two leave out one half each, and
    two three quarters. The rest leave out a tenth or more, such that together they leave out every example equally
    often. The classes take turns in their four models.

    A pool of fewer than eight models has blocks of equal difficulty in its first half, and in its second half random
    parts of different sizes, from which the effect of the size can be estimated.

    Args:
        labels: the class of each example.
        models: number of models.
        seed: random seed of the folds.
        losses: the privacy loss of each example, for the blocks; random blocks by default.
    """
    if models < FEWEST:
        raise InputError(f"`models` must be at least {FEWEST}; got {models}.")
    rng = np.random.default_rng(seed)
    left_out = np.zeros((models, len(labels)), bool)
    large = models >= _BLOCKS + _HEAVY_FOLDS
    blocks = _BLOCKS if large else models // 2
    for position, label in enumerate(np.unique(labels)):
        members = rng.permutation(np.flatnonzero(labels == label))
        ordered = members if losses is None else members[np.argsort(losses[members], kind="stable")]
        for model, part in enumerate(np.array_split(ordered, blocks)):
            left_out[model, part] = True
        others = np.arange(blocks, models)
        if large:
            _assign_others(left_out, members, others, position, rng)
        else:
            _assign_unequal(left_out, members, others)
    return left_out


def _assign_unequal(left_out: NDArray[np.bool_], members: Rows, models: Rows) -> None:
    """Deal out a class in parts whose sizes are as 1 to 2 to 3 and so on."""
    sizes = np.cumsum(np.arange(1, len(models) + 1))
    cuts = np.round(sizes[:-1] / sizes[-1] * len(members)).astype(np.int64)
    for model, part in zip(models, np.split(members, cuts), strict=True):
        left_out[model, part] = True


def _assign_others(
    left_out: NDArray[np.bool_], members: Rows, models: Rows, position: int, rng: np.random.Generator
) -> None:
    """Four models that leave out a large part of a class, and ordinary folds for the rest."""
    heavy = models[(_HEAVY_FOLDS * position + np.arange(_HEAVY_FOLDS)) % len(models)]
    for model, part in zip(heavy, _heavy_folds(members), strict=True):
        left_out[model, part] = True
    light = np.setdiff1d(models, heavy)
    if len(light):
        size = max(1, math.ceil(max(SHARE, 1 / len(light)) * len(members)))
        _assign_light_folds(left_out, members, light, size, rng)


def _heavy_folds(members: Rows) -> list[Rows]:
    """Two halves, and two times three quarters that together cover the class."""
    first, second, third, fourth = np.array_split(members, 4)
    return [
        np.concatenate([first, second]),
        np.concatenate([third, fourth]),
        np.concatenate([first, second, third]),
        np.concatenate([fourth, first, second]),
    ]


def _assign_light_folds(
    left_out: NDArray[np.bool_], members: Rows, models: Rows, size: int, rng: np.random.Generator
) -> None:
    """Deal out the members of a class, `size` to each model."""
    queue: list[int] = []
    for model in models:
        if len(queue) < size:
            # the rest of the last round comes first, so that counts stay equal; no example twice in one model
            queue += [member for member in rng.permutation(members).tolist() if member not in queue]
        left_out[model, queue[:size]] = True
        queue = queue[size:]
