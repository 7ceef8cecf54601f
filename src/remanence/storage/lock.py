"""One writer at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remanence.errors import RunFolderError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock; there the caller must not start two writers
    fcntl = None  # type: ignore[assignment]


@contextmanager
def exclusive(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file; if another process holds it, refuse with this sentence. The kernel frees it on a kill."""
    handle = acquire(path, refusal)
    try:
        yield
    finally:
        os.close(handle)


def acquire(path: Path, refusal: str) -> int:
    """Hold a lock file until this handle, and every copy of it in a process it was passed to, is closed."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for again in (True, True, False):
        if _locked(handle):
            return handle
        if again:
            time.sleep(0.01)  # somebody may only have been looking, with `is_held`
    os.close(handle)
    raise RunFolderError(refusal)


def _locked(handle: int) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_held(path: Path) -> bool:
    """Whether somebody holds a lock file at this moment; nothing is changed."""
    if fcntl is None or not path.exists():
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
