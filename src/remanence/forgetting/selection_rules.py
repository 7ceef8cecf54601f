"""The rules that select forget sets, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from remanence.data import Examples, load_dataset
from remanence.errors import DataError, InputError, UnknownNameError
from remanence.forgetting.forget_set_files import ids_from_file, users_from_file
from remanence.forgetting.selection import bands, easiest, hardest, of_class, of_user, random_set
from remanence.scores import scores_from
from remanence.types import ForgetSet, Scores

Sets = tuple[ForgetSet, ...]
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class SelectionOptions:
    """Options of the selection rules; each rule uses some of them.

    Args:
        size: number of examples.
        seed: random seed.
        examples: the training data, for `class`.
        digest: digest of the data that the scores belong to; other `examples` are refused.
        class_name: name of the class, for `class`.
        ids: a file with ids, for `ids`.
        users: a table with the user of each example, for `user`.
        user: the user, for `user`.
        id_column: column of the ids in both files.
        user_column: column of the users.
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


def choose(how: str, scores: Scores, **options: Any) -> Sets:
    """The forget sets that a rule selects from scored examples; the options are those of `SelectionOptions`."""
    if how not in SELECTION_RULES:
        raise UnknownNameError("selection rule", how, SELECTION_RULES)
    return SELECTION_RULES[how](scores, SelectionOptions(**options))


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
) -> tuple[Sets, str | None]:
    """The forget sets that a rule selects from the examples of a run, or of a table of scores.

    Args:
        source: folder of a run with a trace, or a table written by `write_scores`.
        how: name of the rule.
        score: name of the score; the privacy loss by default.
        alpha: order of the privacy loss, for a run.
        sigma: noise level of the privacy loss, for a run; the run's own by default.
        data: the data set that the run was trained on, for `class`.
        data_dir: folder of the named data sets.
        options: further options of `SelectionOptions`.

    Returns:
        The forget sets, and the digest of the data that they belong to, where it is known.
    """
    scores, digest = scores_from(source, score, alpha=alpha, sigma=sigma)
    if how == "class":
        _given("class_name", options.get("class_name"), how)
        options["examples"] = load_dataset(_given("data", data, how), data_dir)[0]
    return choose(how, scores, digest=digest, **options), digest


def _bands(scores: Scores, options: SelectionOptions) -> Sets:
    return bands(scores, _given("size", options.size, "bands"))


def _hardest(scores: Scores, options: SelectionOptions) -> Sets:
    return (hardest(scores, _given("size", options.size, "hardest")),)


def _easiest(scores: Scores, options: SelectionOptions) -> Sets:
    return (easiest(scores, _given("size", options.size, "easiest")),)


def _random(scores: Scores, options: SelectionOptions) -> Sets:
    return (random_set(scores.ids, _given("size", options.size, "random"), options.seed),)


def _class(scores: Scores, options: SelectionOptions) -> Sets:
    examples = _given("examples", options.examples, "class")
    if options.digest not in (None, examples.digest()):
        raise DataError(
            "`examples` must be the data that the run was trained on; their digest is another one."
        )
    scored = examples.take(scores.ids)
    return (of_class(scored, _given("class_name", options.class_name, "class"), options.size, options.seed),)


def _ids(scores: Scores, options: SelectionOptions) -> Sets:
    return (ids_from_file(_given("ids", options.ids, "ids"), scores.ids, column=options.id_column),)


def _user(scores: Scores, options: SelectionOptions) -> Sets:
    path, user = _given("users", options.users, "user"), _given("user", options.user, "user")
    ids, users = users_from_file(
        path, scores.ids, id_column=options.id_column, user_column=options.user_column
    )
    return (of_user(ids, users, user),)


def _given(name: str, value: _Value | None, how: str) -> _Value:
    if value is None:
        raise InputError(f"Selecting by {how!r} needs `{name}`.")
    return value


SELECTION_RULES: dict[str, Callable[[Scores, SelectionOptions], Sets]] = {
    "bands": _bands,
    "hardest": _hardest,
    "easiest": _easiest,
    "random": _random,
    "class": _class,
    "ids": _ids,
    "user": _user,
}
