"""Tables of scores on disk: CSV, Parquet or JSON, one row per example."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data.columns import Columns, read_columns
from remanence.errors import DataError, InputError
from remanence.scores.table import ScoreTable, score_table
from remanence.storage import atomic, open_folder, read_trace
from remanence.types import Ids, Scores, Status

_STATUS = " status"
"""Suffix of the column with the status of a bound, which is stored beside the bound."""


def write_scores(path: Path, table: ScoreTable, *, force: bool = False) -> None:
    """Write a table in the format of the file's suffix (.csv, .parquet, .json): `id`, then one column per score.

    Each privacy loss is followed by a column with its status. In JSON an infinite value is null.
    """
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise InputError(f"{path} must end in one of {', '.join(_WRITERS)}.")
    if path.exists() and not force:
        raise InputError(f"{path} exists and was left as it is; choose another file, or pass `force=True`.")
    columns: dict[str, list[Any]] = {"id": table.ids.tolist()}
    for name, scores in table.columns.items():
        columns[name] = scores.values.tolist()
        if scores.name == "privacy_loss":
            columns[name + _STATUS] = [scores.status.value] * len(table.ids)
    atomic.write_bytes(path, writer(columns))


def read_scores(path: Path) -> ScoreTable:
    """Read a table that `write_scores` wrote, or any table with an `id` column and columns of numbers."""
    columns = read_columns(path)
    ids = columns.ids("id")
    names = [name for name in columns.values if name != "id" and not name.endswith(_STATUS)]
    if not names:
        raise DataError(f"{path} must have at least one column of scores besides `id`; it has none.")
    return ScoreTable({name: _scores(columns, name, ids) for name in names})


def scores_from(
    source: Path, name: str | None = None, *, alpha: float = 8.0, sigma: float | None = None
) -> tuple[Scores, str | None]:
    """One score of a run with a trace, or of a table on disk, and the digest of the run's data if known.

    Args:
        source: the run folder or the table.
        name: name of the score; the privacy loss by default, or the only one of a table.
        alpha: order of the privacy loss, for a run.
        sigma: noise level of the privacy loss, for a run; the run's own by default.
    """
    if source.is_file() or source.suffix.lower() in _WRITERS:
        table = read_scores(source)
        only = next(iter(table.columns)) if len(table.columns) == 1 else "privacy_loss"
        return table.column(name or only), None
    trace = read_trace(open_folder(source))
    table = score_table(trace, [name or "privacy_loss"], alphas=[alpha], sigmas=[sigma])
    return table.column(name or "privacy_loss"), trace.provenance.get("data")


def _scores(columns: Columns, name: str, ids: Ids) -> Scores:
    kind = "privacy_loss" if name.split(" ")[0] == "privacy_loss" else name
    missing = math.inf if columns.path.suffix.lower() == ".json" else None
    values = columns.numbers(name, finite=False, missing=missing)
    reasons = (f"Read from {columns.path}.",)
    return Scores(kind, ids, values, {}, _status(columns, name), reasons)


def _status(columns: Columns, name: str) -> Status:
    if name + _STATUS not in columns.values:
        return Status.HEURISTIC
    words = columns.column(name + _STATUS)
    for row, word in enumerate(words):
        if word not in list(Status) or word != words[0]:
            raise DataError(
                f"{columns.at(row)}: the status must be one of {', '.join(Status)}; got {word!r}."
            )
    return Status(words[0])


def _csv(columns: dict[str, list[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _json(columns: dict[str, list[Any]]) -> bytes:
    rows = (dict(zip(columns, map(_finite, row), strict=True)) for row in zip(*columns.values(), strict=True))
    return ("[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in rows) + "\n]\n").encode()


def _parquet(columns: dict[str, list[Any]]) -> bytes:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            "Writing Parquet needs pyarrow; install it with `pip install remanence[parquet]`, or write .csv."
        ) from None
    content = io.BytesIO()
    parquet.write_table(arrow.table(columns), content)
    return content.getvalue()


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


_WRITERS: dict[str, Callable[[dict[str, list[Any]]], bytes]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".json": _json,
}
