"""Turn the columns of a table into features: fit on the training rows with scikit-learn, apply plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.data.columns import Columns
from remanence.data.table_settings import CategoryColumn, NumberColumn, TableSettings
from remanence.errors import DataError

_MOST_CATEGORIES = 1000
"""In one column; more are names or free text, not categories."""
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "#n/a"})
"""Entries that mean a missing value, in lower case."""
_ADVICE = "name the column in `category_columns` or `drop_columns`"
_SHOWN = 10

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Entries:
    """The entries of a column.

    Args:
        numbers: the entries that are numbers; NaN for the others.
        missing: which entries are missing.
        words: which entries are neither missing nor a number.
    """

    numbers: Floats
    missing: Mask
    words: Mask


def entries_of(table: Columns, name: str) -> Entries:
    """Tell numbers, words and missing values of a column apart; infinite numbers are an error."""
    values = table.column(name)
    try:
        numbers = np.asarray(values).astype(np.float64)  # much faster than one entry at a time
        missing, words = np.isnan(numbers), np.zeros(len(values), np.bool_)
    except (ValueError, TypeError, OverflowError):
        missing = np.fromiter(map(_is_missing, values), bool, len(values))
        words = np.fromiter((not _is_number(value) for value in values), bool, len(values)) & ~missing
        numbers = np.full(len(values), np.nan)
        for row in np.flatnonzero(~missing & ~words).tolist():
            numbers[row] = float(values[row])
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise DataError(f"{table.at(row)}: {name!r} must be a finite number; got {values[row]!r}.")
    return Entries(numbers, missing, words)


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_number(value: Any) -> bool:
    if not isinstance(value, str | int | float | Decimal):
        return False
    try:
        float(value)
    except (ValueError, OverflowError):
        return False
    return True


def fit_columns(
    table: Columns, features: Sequence[str], in_training: Mask, settings: TableSettings
) -> tuple[NumberColumn | CategoryColumn, ...]:
    """Fit every feature column on the training rows.

    Args:
        table: the table.
        features: names of the feature columns.
        in_training: which rows are for training.
        settings: how to treat missing values, and which columns are categories.
    """
    entries = {name: entries_of(table, name) for name in features}
    missing = {name: column.missing for name, column in entries.items()}
    _refuse_empty(table, {name: mask[in_training] for name, mask in missing.items()})
    if settings.missing == "refuse":
        _refuse_missing(table, missing)
    fill = settings.missing == "median"
    fitted: list[NumberColumn | CategoryColumn] = []
    for name, column in entries.items():
        flagged = bool(column.missing[in_training].any())
        if name in settings.category_columns or not is_numeric(table, name, column, _ADVICE):
            categories = _fit_categories(table, name, in_training & ~column.missing)
            fitted.append(CategoryColumn(name, categories, fill, flagged))
        else:
            values = column.numbers[in_training]
            fitted.append(_fit_numbers(name, values, fill, flagged, settings.standardize))
    return tuple(fitted)


def encode(table: Columns, columns: Sequence[NumberColumn | CategoryColumn]) -> NDArray[np.float32]:
    """The features of every row, [n, features]."""
    blocks = [
        _encode_numbers(table, column) if isinstance(column, NumberColumn) else _encode_words(table, column)
        for column in columns
    ]
    return np.concatenate(blocks, axis=1).astype(np.float32)


def feature_names(columns: Sequence[NumberColumn | CategoryColumn]) -> list[str]:
    """The name of every feature: `age`, `age is missing`, `city = Oslo`."""
    names: list[str] = []
    for column in columns:
        if isinstance(column, NumberColumn):
            names.append(column.name)
        else:
            names += [f"{column.name} = {word}" for word in column.categories]
        names += [f"{column.name} is missing"] if column.flagged else []
    return names


def words_of(table: Columns, name: str, rows: Mask) -> list[str]:
    """A column as text in the chosen rows, and empty text in the others; whole numbers lose their decimal point."""
    return [_word(value) if chosen else "" for value, chosen in zip(table.column(name), rows, strict=True)]


def _fit_numbers(name: str, values: Floats, fill: bool, flagged: bool, standardize: bool) -> NumberColumn:
    from sklearn.impute import SimpleImputer  # takes two seconds, which only tables should cost
    from sklearn.preprocessing import StandardScaler

    imputer = SimpleImputer(strategy="median").fit(values[:, None])
    median = float(imputer.statistics_[0]) if fill else None
    if not standardize:
        return NumberColumn(name, median=median, flagged=flagged)
    scaler = StandardScaler().fit(imputer.transform(values[:, None]))
    return NumberColumn(name, float(scaler.mean_[0]), float(scaler.scale_[0]), median, flagged)


def _fit_categories(table: Columns, name: str, known: Mask) -> tuple[str, ...]:
    from sklearn.preprocessing import OneHotEncoder

    words = np.array(
        [word for word, is_known in zip(words_of(table, name, known), known, strict=True) if is_known]
    )
    encoder = OneHotEncoder(handle_unknown="ignore").fit(words[:, None])
    categories = tuple(str(word) for word in encoder.categories_[0])
    if len(categories) > _MOST_CATEGORIES:
        raise DataError(
            f"{table.path}: a column of categories must have at most {_MOST_CATEGORIES} of them; {name!r} has "
            f"{len(categories)}, such as {categories[0]!r}. Leave it out with `drop_columns`."
        )
    return categories


def _encode_numbers(table: Columns, column: NumberColumn) -> Floats:
    entries = entries_of(table, column.name)
    if column.median is None:
        _refuse_missing(table, {column.name: entries.missing})
    if entries.words.any():
        row = int(np.argmax(entries.words))
        value = table.column(column.name)[row]
        raise DataError(f"{table.at(row)}: {column.name!r} must be a number; got {value!r}.")
    values = np.where(entries.missing, column.median or 0.0, entries.numbers)
    features = ((values - column.mean) / column.scale)[:, None]
    return np.column_stack([features, entries.missing]) if column.flagged else features


def _encode_words(table: Columns, column: CategoryColumn) -> Floats:
    missing = entries_of(table, column.name).missing
    if not column.fill:
        _refuse_missing(table, {column.name: missing})
    place = {word: i for i, word in enumerate(column.categories)}
    features = np.zeros((len(table), len(column.categories) + column.flagged))
    for row, word in enumerate(words_of(table, column.name, ~missing)):
        if not missing[row] and word in place:
            features[row, place[word]] = 1
    if column.flagged:
        features[:, -1] = missing
    return features


def is_numeric(table: Columns, name: str, entries: Entries, advice: str) -> bool:
    """Whether the known values of a column are numbers; many numbers with a few words between them are an error.

    Args:
        table: the table.
        name: name of the column.
        entries: its entries.
        advice: what else to do about such words, for the message.
    """
    n_words = int(entries.words.sum())
    n_numbers = len(table) - n_words - int(entries.missing.sum())
    if 0 < n_words <= n_numbers:
        row = int(np.argmax(entries.words))
        raise DataError(
            f"{table.at(row)}: {name!r} must be a number, as in {n_numbers} other rows; got "
            f"{table.column(name)[row]!r}. Correct the {n_words} such {'row' if n_words == 1 else 'rows'}, or {advice}."
        )
    return n_words == 0


def _word(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value).strip()


def _refuse_empty(table: Columns, missing: dict[str, Mask]) -> None:
    empty = [name for name, mask in missing.items() if mask.all()]
    if empty:
        raise DataError(
            f"{table.path}: a feature must have a value in some training row; {_listed(empty)} "
            f"{'has' if len(empty) == 1 else 'have'} none. Leave out such columns with `drop_columns`."
        )


def _refuse_missing(table: Columns, missing: dict[str, Mask]) -> None:
    counts = {name: int(mask.sum()) for name, mask in missing.items() if mask.any()}
    if counts:
        shown = [f"{name} ({count})" for name, count in counts.items()]
        row = int(np.argmax(next(mask for mask in missing.values() if mask.any())))
        raise DataError(
            f"{table.at(row)}: features must not have missing values; they are missing in {_listed(shown)} of "
            f"{len(table)} rows. Fill them with `missing` set to median, or leave out columns with `drop_columns`."
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
