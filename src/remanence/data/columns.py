"""Read a small table from CSV, Parquet or JSON; every error names the line or row."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.data.read_limits import LIBRARY_LIMITS, ReadLimits
from remanence.errors import DataError
from remanence.types import Ids

_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
"""A whole number in its usual form; 007 and 1e3 are text."""
_SHOWN_NAMES, _SHOWN_LETTERS = 20, 40
"""Limits for column names in error messages."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table by name.

    Args:
        path: the file.
        values: the values of each column: text from CSV, Python values from Parquet and JSON.
        lines: line or row number of each row in the file.
        unit: what `lines` counts: `line` or `row`.
    """

    path: Path
    values: dict[str, list[Any]]
    lines: Sequence[int]
    unit: str

    def __len__(self) -> int:
        return len(self.lines)

    def at(self, row: int) -> str:
        """File and line of a row, for error messages."""
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def column(self, name: str) -> list[Any]:
        if name not in self.values:
            raise DataError(f"{self.path} has no column {name!r}; it has {_listed(list(self.values))}.")
        return self.values[name]

    def numbers(self, name: str, *, finite: bool = True, missing: float | None = None) -> NDArray[np.float64]:
        """A column as float64; anything that is not a number is an error.

        Args:
            name: name of the column.
            finite: refuse infinite values.
            missing: replacement for missing values (null in JSON); refused by default.
        """
        values = [missing if value is None else value for value in self.column(name)]
        try:
            numbers = np.asarray(values).astype(np.float64)
        except (ValueError, TypeError, OverflowError):
            row = next(i for i, value in enumerate(values) if not _is_number(value))
            raise DataError(f"{self.at(row)}: {name!r} must be a number; got {values[row]!r}.") from None
        bad = ~np.isfinite(numbers) if finite else np.isnan(numbers)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"{self.at(row)}: {name!r} must be a finite number; got {values[row]!r}.")
        return numbers

    def names(self, name: str) -> list[str]:
        """A column of words or whole numbers as text; an empty value is an error."""
        texts = []
        for row, value in enumerate(self.column(name)):
            whole = isinstance(value, float) and value.is_integer()
            text = str(int(value)) if whole else "" if value is None else str(value).strip()
            if not text or isinstance(value, bool) or (isinstance(value, float) and not whole):
                raise DataError(f"{self.at(row)}: {name!r} must be a word or a whole number; got {value!r}.")
            texts.append(text)
        return texts

    def ids(self, name: str) -> Ids:
        """A column of unique ids: int64 if all are whole numbers, text otherwise."""
        texts = self.names(name)
        first: dict[str, int] = {}
        for row, text in enumerate(texts):
            if first.setdefault(text, row) != row:
                raise DataError(
                    f"{self.at(row)}: ids must be unique; {text!r} was already in {self.unit} "
                    f"{self.lines[first[text]]}."
                )
        # CSV has no types; in Parquet and JSON, text stays text even if it looks like numbers
        typed_text = self.unit == "row" and any(isinstance(value, str) for value in self.column(name))
        return np.array(texts, dtype=np.str_) if typed_text else as_id_array(texts)


def as_id_array(texts: Sequence[str]) -> Ids:
    """Ids as int64 if all of them are whole numbers, as text otherwise."""
    if all(_WHOLE.fullmatch(text) for text in texts):
        try:
            return np.array([int(text) for text in texts], dtype=np.int64)
        except (ValueError, OverflowError):
            raise DataError("Ids that are whole numbers must have at most 64 bits; one has more.") from None
    return np.array(texts, dtype=np.str_)


def read_columns(path: Path, *, only: str | None = None, limits: ReadLimits = LIBRARY_LIMITS) -> Columns:
    """Read a .csv, .parquet or .json file (JSON: a list of objects, one per row).

    Args:
        path: the file.
        only: read this column and no other.
        limits: a larger file or table is refused; a Parquet file before it is decoded.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path} must end in one of {', '.join(READERS)}.")
    if not path.is_file():
        raise DataError(f"{path} is not a file.")
    limits.check_file(path)
    columns = reader(path, only, limits)
    if len(columns) == 0:
        raise DataError(f"{path} has no rows.")
    return columns


def read_text(path: Path, limits: ReadLimits = LIBRARY_LIMITS) -> str:
    """Read a text file in UTF-8."""
    limits.check_file(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be text in UTF-8; byte {error.start} is not.") from None
    if "\0" in text:
        raise DataError(f"{path} must be text; it has null characters.")
    return text


def _kept(path: Path, names: Sequence[str], only: str | None) -> list[str]:
    """The names of the columns to read."""
    if only is not None and only not in names:
        raise DataError(f"{path} has no column {only!r}; it has {_listed(names)}.")
    return list(names) if only is None else [only]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name[:_SHOWN_LETTERS] for name in names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"


def _read_csv(path: Path, only: str | None, limits: ReadLimits) -> Columns:
    reader = csv.reader(read_text(path, limits).splitlines(keepends=True), strict=True)
    rows, lines = [], []
    try:
        header = [name.strip() for name in next(reader, [])]
        limits.check_table(path, columns=len(header))
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num)
                if len(row) != len(header):
                    raise DataError(
                        f"{path}, line {reader.line_num}: must have {len(header)} fields like the header; "
                        f"got {len(row)}."
                    )
                limits.check_table(path, rows=len(rows))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}.") from None
    if len(set(header)) != len(header) or not all(header):
        raise DataError(f"{path}, line 1: column names must be unique and not empty; got {_listed(header)}.")
    places = {name: header.index(name) for name in _kept(path, header, only)}
    values = {name: [row[place] for row in rows] for name, place in places.items()}
    return Columns(path, values, lines, "line")


def _read_json(path: Path, only: str | None, limits: ReadLimits) -> Columns:
    rows = read_json(path, limits)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} must hold a list of objects, one per row.")
    names = list(rows[0]) if rows else []
    limits.check_table(path, rows=len(rows), columns=len(names))
    for i, row in enumerate(rows):
        if list(row) != names:
            raise DataError(
                f"{path}, row {i}: must have the keys {_listed(names)}; got {_listed(list(row))}."
            )
    values = {name: [row[name] for row in rows] for name in _kept(path, names, only)}
    return Columns(path, values, range(len(rows)), "row")


def read_json(path: Path, limits: ReadLimits = LIBRARY_LIMITS) -> Any:
    """The value of a JSON file."""
    try:
        return json.loads(read_text(path, limits))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from None
    except DataError:
        raise
    except (ValueError, RecursionError):
        raise DataError(
            f"{path} has numbers of too many digits, or is nested too deeply, to be read."
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _read_parquet(path: Path, only: str | None, limits: ReadLimits) -> Columns:
    try:
        from remanence.data.parquet import read_parquet
    except ImportError:
        raise DataError(f"{path} needs pyarrow; install it with `pip install remanence[parquet]`.") from None

    names, values, rows = read_parquet(path, lambda names: _kept(path, names, only), limits)
    return Columns(path, dict(zip(names, values, strict=True)), range(rows), "row")


READERS: dict[str, Callable[[Path, str | None, ReadLimits], Columns]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".json": _read_json,
}
