"""How a table becomes examples: the roles of its columns, and the numbers that turn them into features.

The numbers are plain floats and texts, so they can be kept in the settings file of a run. Every later command then
turns the same table into the same features, whatever has happened to the table's other rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from remanence.errors import InputError
from remanence.losses import CLOSE
from remanence.types import check_choice, check_positive

Missing = Literal["refuse", "median"]
LabelKind = Literal["auto", "class", "number"]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: one feature (x − mean) / scale, and a second one that is 1 where the value is missing.

    Args:
        name: name of the column.
        mean: mean of the training rows; 0 if columns are not standardized.
        scale: standard deviation of the training rows; 1 if columns are not standardized, or if it is 0.
        median: median of the training rows, which replaces missing values; None if missing values are refused.
        flagged: whether the column has the second feature: if training rows have missing values.
    """

    name: str
    mean: float = 0.0
    scale: float = 1.0
    median: float | None = None
    flagged: bool = False

    def __post_init__(self) -> None:
        _check_finite(f"column {self.name!r}", self.mean, self.scale, self.median or 0.0)
        check_positive(f"scale of column {self.name!r}", self.scale)


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories: one feature per category that is 0 or 1; all are 0 for an unknown category.

    Args:
        name: name of the column.
        categories: categories of the training rows, in order.
        fill: accept missing values, for which all features are 0; False if they are refused.
        flagged: whether a further feature is 1 where the value is missing: if training rows have missing values.
    """

    name: str
    categories: tuple[str, ...]
    fill: bool = False
    flagged: bool = False

    def __post_init__(self) -> None:
        _check_unique(f"categories of column {self.name!r}", self.categories)


@dataclass(frozen=True)
class TableEncoding:
    """The features of a table and its label, as they were fitted on the training rows.

    Args:
        columns: the feature columns, in the order of the features.
        classes: names of the classes, in the order of their numbers; empty if the label is a number.
        label_mean: mean of a label that is a number; 0 if it is not standardized.
        label_scale: standard deviation of a label that is a number; 1 if it is not standardized.
        tolerance: a prediction of a number counts as right within this distance of the label.
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    classes: tuple[str, ...] = ()
    label_mean: float = 0.0
    label_scale: float = 1.0
    tolerance: float = CLOSE

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("An encoding must have at least one feature column; it has none.")
        _check_unique("feature columns", [column.name for column in self.columns])
        _check_unique("classes", self.classes)
        _check_finite("label", self.label_mean, self.label_scale, self.tolerance)
        check_positive("label_scale", self.label_scale)
        check_positive("tolerance", self.tolerance)


@dataclass(frozen=True)
class TableSettings:
    """How to read a CSV or Parquet table. Columns without a role are features.

    Args:
        label_column: column of the label.
        label_kind: `class`, `number` (regression), or `auto`: words and at most 20 different whole numbers are classes,
            other numbers are a number.
        id_column: column of the ids; if the table has none, an id is the number of the row, counted from 0.
        split_column: column that says `train` or `test`; if the table has none, about a fifth of the persons, or of
            the rows, are for testing, chosen by a hash.
        user_column: column of the person that a row belongs to; by default `user`, if the table has it.
        drop_columns: columns to leave out; a column of the ids or the split that is left out has no role.
        category_columns: columns of numbers that are codes of categories.
        missing: `refuse` missing values, or replace them by the `median` and add a feature that marks them.
        standardize: give number columns, and a label that is a number, mean 0 and standard deviation 1.
        encoding: the features as they were fitted before; None to fit them on the training rows.
    """

    label_column: str = "label"
    label_kind: LabelKind = "auto"
    id_column: str = "id"
    split_column: str = "split"
    user_column: str | None = None
    drop_columns: tuple[str, ...] = ()
    category_columns: tuple[str, ...] = ()
    missing: Missing = "refuse"
    standardize: bool = True
    encoding: TableEncoding | None = None

    def __post_init__(self) -> None:
        check_choice("label_kind", self.label_kind, ("auto", "class", "number"))
        check_choice("missing", self.missing, ("refuse", "median"))
        object.__setattr__(self, "drop_columns", tuple(self.drop_columns))
        object.__setattr__(self, "category_columns", tuple(self.category_columns))
        for argument in ("drop_columns", "category_columns"):
            _refuse_two_roles(self, argument)
        if self.label_column == self.user:
            raise InputError(f"`label_column` and `user_column` must differ; both are {self.user!r}.")

    @property
    def user(self) -> str:
        """Name of the column of the persons."""
        return self.user_column or "user"


def _refuse_two_roles(settings: TableSettings, argument: str) -> None:
    for role in ("label_column", "user_column"):
        if (name := getattr(settings, role)) in getattr(settings, argument):
            raise InputError(f"A column must have one role; {name!r} is `{role}` and in `{argument}`.")


def _check_finite(what: str, *numbers: float) -> None:
    if not all(map(math.isfinite, numbers)):
        raise InputError(f"The numbers of the {what} must be finite; got {', '.join(map(str, numbers))}.")


def _check_unique(what: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise InputError(
            f"The {what} must differ; got {len(names)}, of which {len(set(names))} are different."
        )
