"""Parse JSON, TOML and arrays that may come from anybody: one error for all that a parser can raise."""

from __future__ import annotations

import errno
import json
import struct
import tokenize
import tomllib
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from remanence.errors import DataError, RunFolderError

_ARCHIVE_ERRORS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    KeyError,
    MemoryError,  # a header that promises more than there is
    NotImplementedError,
    OSError,
    RuntimeError,  # encrypted
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy and zipfile raise for damaged archives: both trust the headers."""


def read_file(path: Path) -> bytes:
    """The content of an ordinary file; a pipe or a device, which could block or never end, counts as missing."""
    with _open(path) as file:
        return file.read()


def parse_json(content: bytes, path: Path) -> Any:
    """The value of a JSON document. NaN, infinities, repeated keys and text that is not Unicode are refused.

    Args:
        content: the bytes of the file.
        path: the file, for the message.
    """
    try:
        value = json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
        # a lone surrogate and 1e999 parse, and cannot be written
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        raise RunFolderError(f"{path} is damaged: it is not valid JSON ({_first_line(error)}).") from None
    return value


def parse_json_lines(content: bytes, path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON lines file; every row must be an object."""
    rows = [parse_json(line, path) for line in content.splitlines()]
    if not all(isinstance(row, dict) for row in rows):
        raise RunFolderError(f"{path} is damaged: expected one JSON object per line.")
    return rows


def parse_toml(content: bytes, path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged: it is not valid TOML ({_first_line(error)}).") from None


def read_arrays(path: Path, *, largest: int = 8 << 30) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz` archive; nothing is unpickled.

    Args:
        path: the file.
        largest: refuse an archive that decodes to more bytes.
    """
    with _open(path) as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                size = sum(entry.file_size for entry in archive.zip.infolist())
                if size <= largest:
                    return {name: archive[name] for name in archive.files}
        except _ARCHIVE_ERRORS as error:
            raise DataError(
                f"{path} is damaged or not an .npz file of plain arrays ({type(error).__name__})."
            ) from None
    raise DataError(f"{path} must have at most {largest:,} bytes once decoded; it has {size:,}.")


def _open(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "Not a file", str(path))
    return path.open("rb")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key appears twice")
    return table


def _first_line(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:120]
