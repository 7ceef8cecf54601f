"""Read columns of a Parquet file within limits.

Compression and dictionaries let a few kilobytes stand for gigabytes. So the metadata are checked before anything is
decoded, columns are decoded in batches, and text stays a dictionary until the length of its entries is known.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
from pyarrow import compute, parquet

from remanence.data.read_limits import ReadLimits
from remanence.errors import DataError

_BATCH = 65_536


def read_parquet(
    path: Path, choose: Callable[[list[str]], list[str]], limits: ReadLimits
) -> tuple[list[str], list[list[Any]], int]:
    """The names and values of the chosen columns, and the number of rows.

    Args:
        path: the file.
        choose: the names of the columns to read, from the names of all.
        limits: a larger table is refused before it is decoded.
    """
    try:
        with parquet.ParquetFile(path) as file:
            _check_metadata(path, file.metadata, limits)
            schema = file.schema_arrow
            names = choose(schema.names)
        texts = [name for name in names if _is_text(schema.field(name).type)]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            return _decode(path, file, names, limits)
    except (arrow.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path} is damaged or not a Parquet file ({type(error).__name__}).") from None


def _check_metadata(path: Path, metadata: Any, limits: ReadLimits) -> None:
    limits.check_table(path, rows=metadata.num_rows, columns=metadata.num_columns)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    sizes = (group.column(i).total_uncompressed_size for group in groups for i in range(metadata.num_columns))
    limits.check_decoded(path, sum(sizes))


def _decode(
    path: Path, file: Any, names: list[str], limits: ReadLimits
) -> tuple[list[str], list[list[Any]], int]:
    values: list[list[Any]] = [[] for _ in names]
    rows = size = 0
    for name in names:
        _check_width(path, file.schema_arrow.field(name).type, limits)
    for batch in file.iter_batches(batch_size=min(_BATCH, limits.rows), columns=names, use_threads=False):
        rows += batch.num_rows
        limits.check_table(path, rows=rows)
        for column, entries in zip(batch.columns, values, strict=True):
            size += _decoded_size(path, column, limits)
            limits.check_decoded(path, size)
            entries.extend(column.to_pylist())
    return names, values, rows


def _check_width(path: Path, kind: Any, limits: ReadLimits) -> None:
    """Refuse what one row could make large; text is checked when its dictionary is known."""
    if arrow.types.is_nested(kind):
        raise DataError(f"{path} must have a number or a text in every entry; it has a column of {kind}.")
    if arrow.types.is_fixed_size_binary(kind):
        limits.check_entry(path, kind.byte_width)


def _decoded_size(path: Path, column: Any, limits: ReadLimits) -> int:
    if not arrow.types.is_dictionary(column.type):
        return int(column.nbytes)
    if not _is_text(column.type.value_type) or len(column.dictionary) == 0:
        return int(column.nbytes)
    lengths = compute.binary_length(column.dictionary)
    longest = compute.max(lengths).as_py() or 0
    limits.check_entry(path, longest)
    return int(compute.sum(lengths.take(column.indices)).as_py() or 0)


def _is_text(kind: Any) -> bool:
    types = arrow.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )
