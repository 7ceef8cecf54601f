"""Select forget sets: by score, at random, by class, by user, or from a list."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from remanence.data import Examples, load_dataset
from remanence.errors import DataError, InputError, UnknownNameError
from remanence.forgetting.forget_set_files import ids_from_file, users_from_file
from remanence.scores import scores_from
from remanence.training import Run, open_run
from remanence.types import ForgetSet, Ids, Scores, positions_of

SELECTION_RULES = ("bands", "hardest", "easiest", "random", "class", "ids", "user")
BAND_NAMES = ("lowest", "lower quartile", "median", "upper quartile", "highest")
_Value = TypeVar("_Value")


def choose(
    how: str,
    scores: Scores,
    *,
    size: int | None = None,
    seed: int = 0,
    examples: Examples | None = None,
    digest: str | None = None,
    class_name: str | None = None,
    ids: Path | None = None,
    users: Path | None = None,
    owners: tuple[Ids, Sequence[str]] | None = None,
    user: str | None = None,
    id_column: str = "id",
    user_column: str = "user",
) -> tuple[ForgetSet, ...]:
    """Select forget sets from scored examples by one of the `SELECTION_RULES`.

    Args:
        how: name of the rule.
        scores: the examples with their scores.
        size: number of examples, for the rules by score, `random` and `class`.
        seed: random seed, for `random` and `class`.
        examples: the training data, for `class`.
        digest: digest of the data that the scores belong to; other `examples` are refused.
        class_name: name of the class, for `class`.
        ids: a file with ids, for `ids`.
        users: a table with the user of each example, for `user`.
        owners: ids and the user of each, for `user`, instead of `users`.
        user: the user, for `user`.
        id_column: column of the ids in both files.
        user_column: column of the users.
    """
    match how:
        case "bands":
            return bands(scores, _given("size", size, how))
        case "hardest":
            return (hardest(scores, _given("size", size, how)),)
        case "easiest":
            return (easiest(scores, _given("size", size, how)),)
        case "random":
            return (random_set(scores.ids, _given("size", size, how), seed),)
        case "class":
            known = _known_examples(_given("examples", examples, how), scores, digest)
            return (of_class(known, _given("class_name", class_name, how), size, seed),)
        case "ids":
            return (ids_from_file(_given("ids", ids, how), scores.ids, column=id_column),)
        case "user":
            if owners is None:
                path = _given("users", users, how)
                owners = users_from_file(path, scores.ids, id_column=id_column, user_column=user_column)
            return (of_user(*_among(scores.ids, *owners), _given("user", user, how)),)
    raise UnknownNameError("selection rule", how, SELECTION_RULES)


def select_forget_sets(
    source: Path,
    how: str,
    *,
    score: str | None = None,
    alpha: float = 8.0,
    sigma: float | None = None,
    data: str | None = None,
    data_dir: str | Path | None = None,
    **options: Any,
) -> tuple[tuple[ForgetSet, ...], str | None]:
    """Select forget sets from the examples of a run, or of a table of scores.

    Args:
        source: folder of a run with a trace, or a table written by `write_scores`.
        how: one of the `SELECTION_RULES`.
        score: name of the score; the privacy loss by default.
        alpha: order of the privacy loss, for a run.
        sigma: noise level of the privacy loss, for a run; the run's own by default.
        data: the data set that the run was trained on, for `class`; by default the run's own.
        data_dir: folder of the named data sets.
        options: further arguments of `choose`.

    Returns:
        The forget sets, and the digest of the data that they belong to, where it is known.
    """
    scores, digest = scores_from(source, score, alpha=alpha, sigma=sigma)
    if how == "class":
        _given("class_name", options.get("class_name"), how)
        options["examples"] = _training_examples(source, data, data_dir)
    own_data = how == "class" and data is None
    if how == "user" and options.get("users") is None and _is_run(source):
        options["owners"] = open_run(source).settings.source.data.users()
    return choose(how, scores, digest=None if own_data else digest, **options), digest


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


def alike(scores: Scores, wanted: ForgetSet) -> ForgetSet:
    """Other examples as difficult as these: for each, hardest first, the unused one that is nearest in the ranking.

    To tune on: settings that suit random examples are too gentle for hard ones, and those that are reported on must
    not be tuned on.
    """
    size, n = len(wanted.ids), len(scores.ids)
    if size > n // 2:
        raise InputError(
            f"A forget set of at most half of the {n} examples has others that are as difficult; this one has {size}."
        )
    order = _increasing(scores)
    ranks = np.empty(n, dtype=np.int64)
    ranks[order] = np.arange(n)
    members = ranks[positions_of(wanted.ids, scores.ids, what="the scores")]
    free = np.setdiff1d(np.arange(n), members).tolist()
    chosen = []
    for rank in sorted(members.tolist(), reverse=True):
        after = bisect.bisect(free, rank)
        nearest = min(
            (i for i in (after - 1, after) if 0 <= i < len(free)), key=lambda i: abs(free[i] - rank)
        )
        chosen.append(free.pop(nearest))
    return ForgetSet(
        f"like {wanted.name}", scores.ids[order[chosen]], f"{size} others with a similar {scores.name}"
    )


def random_set(ids: Ids, size: int, seed: int) -> ForgetSet:
    """Examples drawn uniformly without replacement, in the order of `ids`."""
    _check_size(size, len(ids))
    chosen = np.sort(np.random.default_rng(seed).choice(len(ids), size, replace=False))
    return ForgetSet("random", ids[chosen], f"{size} examples drawn with seed {seed}")


def of_class(examples: Examples, class_name: str, size: int | None = None, seed: int = 0) -> ForgetSet:
    """All examples of a class, or `size` of them drawn at random."""
    if not examples.class_names:
        raise InputError("Selecting by 'class' needs labels that are classes; these are numbers.")
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
        # the names of other persons are nobody's business, so none is suggested
        raise InputError(f"No example belongs to the user {user!r}.")
    return ForgetSet("one person", chosen, f"all {len(chosen)} examples of one person")


def examples_of_user(run: Run, user: str) -> ForgetSet:
    """All examples of one user that a run still holds, by the column of persons in its table."""
    ids, users = run.settings.source.data.users()
    held, owners = _among(run.data()[0].ids, ids, users)
    if user not in owners:
        reason = (
            "their examples are for testing, or have been removed"
            if user in users
            else "the table has no such person"
        )
        raise DataError(
            f"{run.folder.path} must hold training examples of {user!r}; it holds none: {reason}."
        )
    return of_user(held, owners, user)


def _among(known: Ids, ids: Ids, users: Sequence[str]) -> tuple[Ids, list[str]]:
    """The ids that are known, and their users."""
    keep = np.isin(ids, known)
    return ids[keep], [user for user, kept in zip(users, keep, strict=True) if kept]


def _training_examples(source: Path, data: str | None, data_dir: str | Path | None) -> Examples:
    if data is None and _is_run(source):
        return open_run(source).clean[0]
    return load_dataset(_given("data", data, "class"), data_dir)[0]


def _is_run(source: Path) -> bool:
    return (source / "weights.safetensors").is_file()


def _given(name: str, value: _Value | None, how: str) -> _Value:
    if value is None:
        raise InputError(f"Selecting by {how!r} needs `{name}`.")
    return value


def _known_examples(examples: Examples, scores: Scores, digest: str | None) -> Examples:
    if digest not in (None, examples.digest()):
        raise DataError(
            "`examples` must be the data that the run was trained on; their digest is another one."
        )
    return examples.take(scores.ids)


def _increasing(scores: Scores) -> NDArray[np.int64]:
    return np.lexsort((scores.ids, scores.values))


def _check_size(size: int, available: int) -> None:
    if not 1 <= size <= available:
        raise InputError(f"`size` must be between 1 and the {available} examples there are; got {size}.")
