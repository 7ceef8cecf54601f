"""Every way to choose a forget set, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from remanence.data import Examples
from remanence.errors import DataError, InputError, UnknownNameError
from remanence.forgetting.files import ids_from_file, users_from_file
from remanence.forgetting.selection import bands, easiest, hardest, of_class, of_user, random_set
from remanence.types import ForgetSet, Scores

Sets = tuple[ForgetSet, ...]
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Wishes:
    """What the ways to choose may ask for; each takes what it needs.

    Args:
        size: how many examples.
        seed: of what is drawn at random.
        examples: the training data, for `class`.
        digest: of the data that the scores are of; other examples are then refused.
        class_name: for `class`.
        ids: a file that lists ids.
        users: a table that says whose each example is.
        user: the person, for `user`.
        id_column: column of the ids in both files.
        user_column: column of the persons.
    """

    size: int | None = None
    seed: int = 0
    examples: Examples | None = None
    digest: str | None = None
    class_name: str | None = None
    ids: Path | None = None
    users: Path | None = None
    user: str | None = None
    id_column: str = "id"
    user_column: str = "user"


def choose(how: str, scores: Scores, **wishes: Any) -> Sets:
    """The forget sets that one of the `WAYS` makes of scored examples; `wishes` are those of `Wishes`."""
    if how not in WAYS:
        raise UnknownNameError("way to choose", how, WAYS)
    return WAYS[how](scores, Wishes(**wishes))


def _bands(scores: Scores, wishes: Wishes) -> Sets:
    return bands(scores, _given("size", wishes.size, "bands"))


def _hardest(scores: Scores, wishes: Wishes) -> Sets:
    return (hardest(scores, _given("size", wishes.size, "hardest")),)


def _easiest(scores: Scores, wishes: Wishes) -> Sets:
    return (easiest(scores, _given("size", wishes.size, "easiest")),)


def _random(scores: Scores, wishes: Wishes) -> Sets:
    return (random_set(scores.ids, _given("size", wishes.size, "random"), wishes.seed),)


def _class(scores: Scores, wishes: Wishes) -> Sets:
    examples = _given("data", wishes.examples, "class")
    if wishes.digest not in (None, examples.digest()):
        raise DataError("The data must be those that the run was trained on; their digest is another one.")
    known = examples.take(scores.ids)
    return (of_class(known, _given("class", wishes.class_name, "class"), wishes.size, wishes.seed),)


def _ids(scores: Scores, wishes: Wishes) -> Sets:
    return (ids_from_file(_given("ids", wishes.ids, "ids"), scores.ids, column=wishes.id_column),)


def _user(scores: Scores, wishes: Wishes) -> Sets:
    path, person = _given("users", wishes.users, "user"), _given("user", wishes.user, "user")
    ids, users = users_from_file(path, scores.ids, id_column=wishes.id_column, user_column=wishes.user_column)
    return (of_user(ids, users, person),)


def _given(option: str, value: _Value | None, how: str) -> _Value:
    if value is None:
        raise InputError(f"Choosing by {how} needs --{option}.")
    return value


WAYS: dict[str, Callable[[Scores, Wishes], Sets]] = {
    "bands": _bands,
    "hardest": _hardest,
    "easiest": _easiest,
    "random": _random,
    "class": _class,
    "ids": _ids,
    "user": _user,
}
