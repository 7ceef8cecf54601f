"""Lock files, so that only one process writes to a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remanence.errors import RunFolderError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock; users must not start two writers
    fcntl = None  # type: ignore[assignment]


@contextmanager
def exclusive(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file during the block; the kernel releases it if the process is killed.

    Args:
        path: the lock file.
        refusal: message of the error if another process holds it.
    """
    handle = acquire(path, refusal)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def waiting(path: Path) -> Iterator[None]:
    """Hold a lock file during the block; waits for other processes, which must hold it for moments only."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def acquire(path: Path, refusal: str) -> int:
    """Hold a lock file until the returned handle is closed, also in processes that it was passed to."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for retries_left in (2, 1, 0):
        if _try_lock(handle, shared=False):
            return handle
        if retries_left:
            time.sleep(0.01)  # another process may only be checking, with `is_held`
    os.close(handle)
    raise RunFolderError(refusal)


def is_held(path: Path) -> bool:
    """Whether a process holds a lock file at this moment; changes nothing."""
    if not path.exists():
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        return not _try_lock(handle, shared=True)
    finally:
        os.close(handle)


def _try_lock(handle: int, *, shared: bool) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
