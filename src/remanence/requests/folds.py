"""Who is left out by which model of the reference pool."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError

SHARE = 0.1
"""Every model leaves out this share of each class."""
HEAVY = (0.5, 0.75)
"""And these shares of a few classes, so that the pool knows what a class that is nearly gone looks like."""
_LEAST = 2


def deal_folds(labels: NDArray[np.int64], models: int, *, seed: int) -> NDArray[np.bool_]:
    """[models, n] which model leaves out which example.

    Each class is dealt on its own. Twice it loses a half (one, then the other), twice three quarters (of them every
    quarter once at least), in models of its turn; in all the others a tenth, dealt so that its examples are left out
    equally often. With C classes there are 4C turns; they go around the models.
    """
    if models < 2 * _LEAST / SHARE / 2:
        raise InputError(f"`models` must be at least {int(_LEAST / SHARE)}; got {models}.")
    rng = np.random.default_rng(seed)
    left_out = np.zeros((models, len(labels)), bool)
    classes = np.unique(labels)
    for place, label in enumerate(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        turns = [(4 * place + turn) % models for turn in range(4)]
        for model, part in zip(turns, _heavy_parts(members), strict=True):
            left_out[model, part] = True
        light = np.array([model for model in range(models) if model not in turns])
        _deal_light(left_out, members, light, rng)
    return left_out


def _heavy_parts(members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    first, second, third, fourth = np.array_split(members, 4)
    return [
        np.concatenate([first, second]),
        np.concatenate([third, fourth]),
        np.concatenate([first, second, third]),
        np.concatenate([fourth, first, second]),
    ]


def _deal_light(
    left_out: NDArray[np.bool_],
    members: NDArray[np.int64],
    models: NDArray[np.int64],
    rng: np.random.Generator,
) -> None:
    """Leave out a tenth of the members in each of these models; nobody more than once more than another."""
    tenth = max(1, round(SHARE * len(members)))
    order: list[int] = []
    for model in models:
        if len(order) < tenth:
            # those left over come first, so that turns stay equal; nobody twice in one model
            order += [each for each in rng.permutation(members).tolist() if each not in order]
        left_out[model, order[:tenth]] = True
        order = order[tenth:]
