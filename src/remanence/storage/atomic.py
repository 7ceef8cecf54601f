"""Atomic writes: to a temporary name first, then renamed, so that a reader sees all or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remanence.errors import RunFolderError

_PREFIX = ".partial-"


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file completely or not at all, even if the machine loses power in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=_PREFIX, suffix=f"-{path.name}", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a text file completely or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, document: Any) -> None:
    """Replace a JSON file completely or not at all; infinite numbers and NaN are errors."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Fill a temporary folder, which becomes `target` at the end of the block; after an error it is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(
        tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", suffix=f"-{target.name}", dir=target.parent)
    )
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync_file(file)
        temporary.chmod(0o755)
        if target.exists():
            raise RunFolderError(f"{target} appeared while it was being written; it was left as it is.")
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_folder(target.parent)


def sweep(parent: Path) -> int:
    """Remove temporary files and folders of dead processes from `parent`; return how many."""
    removed = 0
    for leftover in parent.glob(f"{_PREFIX}*") if parent.is_dir() else ():
        if _is_being_written(leftover):
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
        removed += 1
    return removed


def _is_being_written(leftover: Path) -> bool:
    pid = leftover.name.removeprefix(_PREFIX).split("-", 1)[0]
    if not leftover.is_dir() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return int(pid) != os.getpid()


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(path: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync folders; the rename is atomic anyway
        _sync_file(path)
