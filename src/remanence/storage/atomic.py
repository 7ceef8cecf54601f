"""Write aside, then rename: a reader sees the whole thing or nothing."""

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

_ASIDE = ".partial-"


def write_bytes(path: Path, content: bytes) -> None:
    """Replace one file, whole or not at all, even when the machine loses power half-way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=_ASIDE, suffix=f"-{path.name}", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).chmod(0o644)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace one text file, whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, document: Any) -> None:
    """Replace one JSON file, whole or not at all; infinite numbers and NaN are refused."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Fill a folder aside; when the block ends well it becomes `target`, otherwise it is gone."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(
        tempfile.mkdtemp(prefix=f"{_ASIDE}{os.getpid()}-", suffix=f"-{target.name}", dir=target.parent)
    )
    try:
        yield aside
        for file in aside.rglob("*"):
            if file.is_file():
                _sync_file(file)
        aside.chmod(0o755)
        if target.exists():
            raise RunFolderError(f"{target} appeared while it was being written; it was left as it is.")
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _sync_folder(target.parent)


def sweep(parent: Path) -> int:
    """Remove what writers that no longer live left half-written in `parent`; return how many pieces."""
    removed = 0
    for leftover in parent.glob(f"{_ASIDE}*") if parent.is_dir() else ():
        if _writer_lives(leftover):
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
        removed += 1
    return removed


def _writer_lives(leftover: Path) -> bool:
    pid = leftover.name.removeprefix(_ASIDE).split("-", 1)[0]
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
    with contextlib.suppress(OSError):  # some file systems do not sync folders; the rename is atomic anyway
        _sync_file(path)
