"""Limits for tables and lists that are read from a file: a small file can decode to more than the memory holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remanence.errors import DataError

_UTF32 = 4
"""Bytes per character in a NumPy array of text, in which every entry is as wide as the longest."""


@dataclass(frozen=True)
class ReadLimits:
    """The largest file, table and entry that a reader accepts.

    Args:
        file_bytes: size of the file.
        decoded_bytes: size in memory of the decoded columns, before they become Python values.
        rows: number of rows.
        columns: number of columns in the file, whether they are read or not.
        entry_bytes: size of one entry.
    """

    file_bytes: int
    decoded_bytes: int
    rows: int
    columns: int
    entry_bytes: int

    def check_file(self, path: Path) -> None:
        _check(path, "bytes", path.stat().st_size, self.file_bytes)

    def check_table(self, path: Path, *, rows: int = 0, columns: int = 0) -> None:
        _check(path, "rows", rows, self.rows)
        _check(path, "columns", columns, self.columns)

    def check_decoded(self, path: Path, size: int) -> None:
        _check(path, "bytes once decoded", size, self.decoded_bytes)

    def check_entry(self, path: Path, size: int) -> None:
        _check(path, "bytes in one entry", size, self.entry_bytes)

    def check_texts(self, path: Path, texts: Sequence[str]) -> None:
        """Refuse texts that would not fit as a NumPy array: one long entry widens all."""
        longest = max(map(len, texts), default=0)
        self.check_entry(path, longest)
        self.check_decoded(path, len(texts) * longest * _UTF32)


def _check(path: Path, what: str, number: int, limit: int) -> None:
    if number > limit:
        raise DataError(f"{path} must have at most {limit:,} {what}; it has {number:,}.")


LIBRARY_LIMITS = ReadLimits(
    file_bytes=8 << 30, decoded_bytes=8 << 30, rows=100_000_000, columns=100_000, entry_bytes=1 << 20
)
"""For files that the user names: beyond these a table does not fit into the memory of most machines."""
UPLOAD_LIMITS = ReadLimits(
    file_bytes=4 << 20, decoded_bytes=64 << 20, rows=1_000_000, columns=1_000, entry_bytes=1_000
)
"""For lists of ids that a browser sends."""
