"""Forget sets by score, at random, by class or by user."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from remanence.data import Examples
from remanence.errors import InputError, UnknownNameError
from remanence.types import ForgetSet, Ids, Scores

BAND_NAMES = ("lowest", "lower quartile", "median", "upper quartile", "highest")


def bands(scores: Scores, size: int) -> tuple[ForgetSet, ...]:
    """Five forget sets of increasing difficulty: the lowest scores, around each quartile, the highest.

    Ties are broken by the order of the ids, so the same scores always give the same sets. Sets of up to a sixth of the
    examples are disjoint; larger ones overlap with their neighbours.
    """
    n = len(scores.ids)
    if not 1 <= size <= n // 5:
        raise InputError(f"`size` must be between 1 and {n // 5}, a fifth of the {n} examples; got {size}.")
    order = _increasing(scores)
    starts = [0, *(round(n * quarter / 4) - size // 2 for quarter in (1, 2, 3)), n - size]
    return tuple(
        ForgetSet(name, scores.ids[order[start : start + size]], f"{size} examples, {name} {scores.name}")
        for name, start in zip(BAND_NAMES, starts, strict=True)
    )


def hardest(scores: Scores, size: int) -> ForgetSet:
    """The examples with the highest scores, hardest first."""
    _check_size(size, len(scores.ids))
    chosen = scores.ids[_increasing(scores)[::-1][:size]]
    return ForgetSet("hardest", chosen, f"{size} examples with the highest {scores.name}")


def easiest(scores: Scores, size: int) -> ForgetSet:
    """The examples with the lowest scores, easiest first."""
    _check_size(size, len(scores.ids))
    chosen = scores.ids[_increasing(scores)[:size]]
    return ForgetSet("easiest", chosen, f"{size} examples with the lowest {scores.name}")


def random_set(ids: Ids, size: int, seed: int) -> ForgetSet:
    """Examples drawn uniformly without replacement, in the order of `ids`."""
    _check_size(size, len(ids))
    chosen = np.sort(np.random.default_rng(seed).choice(len(ids), size, replace=False))
    return ForgetSet("random", ids[chosen], f"{size} examples drawn with seed {seed}")


def of_class(examples: Examples, class_name: str, size: int | None = None, seed: int = 0) -> ForgetSet:
    """All examples of a class, or `size` of them drawn at random."""
    if class_name not in examples.class_names:
        raise UnknownNameError("class", class_name, examples.class_names)
    ids = examples.ids[examples.labels.numpy() == examples.class_names.index(class_name)]
    if len(ids) == 0:
        raise InputError(f"Class {class_name!r} must have examples to forget; it has none.")
    name = f"class {class_name}"
    if size is None:
        return ForgetSet(name, ids, f"all {len(ids)} examples of class {class_name}")
    drawn = random_set(ids, size, seed)
    return ForgetSet(name, drawn.ids, f"{size} examples of class {class_name} drawn with seed {seed}")


def of_user(ids: Ids, users: Sequence[str], user: str) -> ForgetSet:
    """All examples of one user; `users` has the user of each id."""
    chosen = ids[np.array([owner == user for owner in users], dtype=np.bool_)]
    if len(chosen) == 0:
        raise UnknownNameError("user", user, set(users))
    return ForgetSet(f"user {user}", chosen, f"all {len(chosen)} examples of user {user}")


def _increasing(scores: Scores) -> NDArray[np.int64]:
    return np.lexsort((scores.ids, scores.values))


def _check_size(size: int, available: int) -> None:
    if not 1 <= size <= available:
        raise InputError(f"`size` must be between 1 and the {available} examples there are; got {size}.")
