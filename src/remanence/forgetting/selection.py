"""Forget sets chosen by score or by chance."""

from __future__ import annotations

import numpy as np

from remanence.errors import InputError
from remanence.types import ForgetSet, Ids, Scores

BAND_NAMES = ("lowest", "lower quartile", "median", "upper quartile", "highest")


def bands(scores: Scores, size: int) -> tuple[ForgetSet, ...]:
    """Five forget sets of rising difficulty: the lowest scores, around each quartile, the highest.

    Ties are broken by the order of the ids, so the same scores always give the same sets.
    """
    n = len(scores.ids)
    if not 1 <= size <= n // 5:
        raise InputError(f"`size` must be between 1 and {n // 5}, a fifth of the {n} examples; got {size}.")
    order = np.lexsort((scores.ids, scores.values))
    starts = [0, *(round(n * quarter / 4) - size // 2 for quarter in (1, 2, 3)), n - size]
    return tuple(
        ForgetSet(name, scores.ids[order[start : start + size]], f"{size} examples, {name} {scores.name}")
        for name, start in zip(BAND_NAMES, starts, strict=True)
    )


def random_set(ids: Ids, size: int, seed: int) -> ForgetSet:
    """A forget set drawn at random."""
    if not 1 <= size <= len(ids):
        raise InputError(f"`size` must be between 1 and the {len(ids)} examples there are; got {size}.")
    chosen = np.sort(np.random.default_rng(seed).choice(len(ids), size, replace=False))
    return ForgetSet("random", ids[chosen], f"{size} examples drawn with seed {seed}")
