"""A table with one row per example: its ids, persons, split, label and features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remanence.data.columns import Columns, read_columns
from remanence.data.examples import Examples, as_labels
from remanence.data.preprocessing import hashed_test_mask, train_test_split
from remanence.data.table_encoding import encode, entries_of, fit_columns, is_numeric, words_of
from remanence.data.table_settings import TableEncoding, TableSettings
from remanence.errors import DataError
from remanence.losses import CLASSIFICATION, CLOSE, Readout, squared_error, within
from remanence.types import Ids

_FEW_CLASSES = 20
"""So many different whole numbers are classes without being asked."""
_MANY_REPEATS = 10
"""Rows per different whole number from which it is unclear whether they are classes or a number."""
_MOST_CLASSES = 10_000


def read_feature_table(path: Path, settings: TableSettings | None = None) -> tuple[Examples, Examples]:
    """Read training and test examples from a CSV or Parquet table.

    All rows of one person are on the same side. Features are fitted on the training rows, or taken from
    `settings.encoding`. A label that is a number gives float32 labels [n, 1] without classes; its loss is the squared
    error.

    Args:
        path: the file.
        settings: roles of the columns, and how they become features.
    """
    table = _Table(read_columns(path), settings or TableSettings())
    encoding = table.settings.encoding or table.fit()
    labels = table.labels(encoding)
    inputs = torch.from_numpy(encode(table.columns, encoding.columns))
    readout = (
        CLASSIFICATION if encoding.classes else Readout(squared_error, correct=within(encoding.tolerance))
    )
    examples = Examples(table.ids, inputs, labels, encoding.classes, readout)
    return train_test_split(examples, table.is_test, what=str(path))


def fit_table(path: Path, settings: TableSettings | None = None) -> TableSettings:
    """The settings with an encoding: their own, or that of the training rows of this table."""
    settings = settings or TableSettings()
    if settings.encoding is not None:
        return settings
    return replace(settings, encoding=_Table(read_columns(path), settings).fit())


def read_users(path: Path, settings: TableSettings | None = None) -> tuple[Ids, list[str]]:
    """The id of each row, for training or for testing, and the person that it belongs to."""
    table = _Table(read_columns(path), settings or TableSettings())
    if table.users is None:
        raise DataError(
            f"{path} must have a column of persons; it has no column {table.settings.user!r}. Name it as `user_column` "
            "when the model is trained."
        )
    return table.ids, table.users


@dataclass(frozen=True)
class _Table:
    """A table with the roles of its columns checked."""

    columns: Columns
    settings: TableSettings

    def __post_init__(self) -> None:
        settings = self.settings
        named = [settings.label_column, *settings.drop_columns, *settings.category_columns]
        for name in [*named, *([settings.user_column] if settings.user_column else [])]:
            self.columns.column(name)  # refuses a name that the table does not have
        if not self.features:
            raise DataError(f"{self.path} must have feature columns beside {', '.join(self.columns.values)}.")

    @property
    def path(self) -> Path:
        return self.columns.path

    @property
    def features(self) -> list[str]:
        """Names of the feature columns."""
        settings = self.settings
        roles = (settings.label_column, settings.id_column, settings.split_column, settings.user)
        return [name for name in self.columns.values if name not in (*roles, *settings.drop_columns)]

    @property
    def ids(self) -> Ids:
        return (
            self.columns.ids(self.settings.id_column)
            if self._has("id_column")
            else np.arange(len(self.columns))
        )

    @property
    def users(self) -> list[str] | None:
        """The person of each row; None if the table has no such column."""
        name = self.settings.user
        present = name in self.columns.values and name not in self.settings.drop_columns
        return self.columns.names(name) if present else None

    @property
    def is_test(self) -> NDArray[np.bool_]:
        """Which rows are for testing."""
        users = self.users
        if not self._has("split_column"):
            return hashed_test_mask(self.ids if users is None else np.array(users))
        is_test = _split_column(self.columns, self.settings.split_column)
        if users is not None:
            _refuse_divided(self.columns, users, is_test)
        return is_test

    def fit(self) -> TableEncoding:
        """Fit the features and the label on the training rows."""
        in_training, settings = ~self.is_test, self.settings
        columns = fit_columns(self.columns, self.features, in_training, settings)
        if self.label_kind() == "class":
            # without a split column, the classes are those of all rows: the hash must not hide one
            rows = in_training if self._has("split_column") else np.ones_like(in_training)
            return TableEncoding(columns, classes=_classes(self.columns, settings.label_column, rows))
        values = self.columns.numbers(settings.label_column)[in_training]
        if len(values) == 0:
            return TableEncoding(columns)  # `train_test_split` refuses it
        mean, deviation = float(values.mean()), float(values.std()) or 1.0
        if not settings.standardize:
            return TableEncoding(columns, tolerance=CLOSE * deviation)
        return TableEncoding(columns, label_mean=mean, label_scale=deviation)

    def labels(self, encoding: TableEncoding) -> Tensor:
        """Class numbers [n], or float32 numbers [n, 1]."""
        name = self.settings.label_column
        if encoding.classes:
            return as_labels(_class_numbers(self.columns, name, encoding.classes))
        values = (self.columns.numbers(name) - encoding.label_mean) / encoding.label_scale
        return torch.from_numpy(values.astype(np.float32))[:, None]

    def label_kind(self) -> Literal["class", "number"]:
        """Whether the label is a class or a number; an error if that is unclear."""
        if self.settings.label_kind != "auto":
            return "class" if self.settings.label_kind == "class" else "number"
        name = self.settings.label_column
        entries = entries_of(self.columns, name)
        numbers = entries.numbers[~entries.missing]
        if not is_numeric(self.columns, name, entries, "set `label_kind` to class"):
            return "class"
        if not np.array_equal(numbers, np.round(numbers)):
            return "number"
        distinct = len(np.unique(numbers))
        if distinct <= _FEW_CLASSES:
            return "class"
        if len(numbers) >= _MANY_REPEATS * distinct:
            raise DataError(
                f"{self.path}: the label {name!r} has {distinct} different whole numbers in {len(numbers)} rows, which "
                "may be classes or a number. Set `label_kind` to class or number."
            )
        return "number"

    def _has(self, role: str) -> bool:
        name = getattr(self.settings, role)
        return name in self.columns.values and name not in self.settings.drop_columns


def _split_column(table: Columns, split: str) -> NDArray[np.bool_]:
    words = [word.lower() for word in table.names(split)]
    for row, word in enumerate(words):
        if word not in ("train", "test"):
            raise DataError(f"{table.at(row)}: {split!r} must be train or test; got {word!r}.")
    return np.array([word == "test" for word in words], dtype=np.bool_)


def _refuse_divided(table: Columns, users: list[str], is_test: NDArray[np.bool_]) -> None:
    first: dict[str, int] = {}
    for row, user in enumerate(users):
        start = first.setdefault(user, row)
        if is_test[start] != is_test[row]:
            raise DataError(
                f"{table.at(row)}: all rows of one person must be for training or all for testing; {user!r} is also "
                f"in {table.unit} {table.lines[start]}, on the other side."
            )


def _classes(table: Columns, label: str, rows: NDArray[np.bool_]) -> tuple[str, ...]:
    """Names of the classes that occur in these rows, numbers in their order."""
    known = {word for word, chosen in zip(_label_words(table, label), rows, strict=True) if chosen}
    if len(known) > _MOST_CLASSES or (len(known) > _FEW_CLASSES and 2 * len(known) > len(table)):
        raise DataError(
            f"{table.path}: a label that is a class must repeat; {label!r} has {len(known)} different values in "
            f"{len(table)} rows. Is it the right `label_column`, or is its `label_kind` number?"
        )
    whole = all(word.lstrip("-").isdecimal() for word in known)
    return tuple(sorted(known, key=int if whole else None))


def _class_numbers(table: Columns, label: str, classes: tuple[str, ...]) -> NDArray[np.int64]:
    number = {name: i for i, name in enumerate(classes)}
    words = _label_words(table, label)
    for row, word in enumerate(words):
        if word not in number:
            raise DataError(f"{table.at(row)}: the class {word!r} does not occur in the training rows.")
    return np.array([number[word] for word in words], dtype=np.int64)


def _label_words(table: Columns, label: str) -> list[str]:
    missing = entries_of(table, label).missing
    if missing.any():
        row = int(np.argmax(missing))
        got = table.column(label)[row]
        raise DataError(f"{table.at(row)}: {label!r} must be a word or a whole number; got {got!r}.")
    return words_of(table, label, ~missing)
