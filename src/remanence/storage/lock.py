"""One writer at a time."""

from __future__ import annotations

import os
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
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(refusal) from None
        yield
    finally:
        os.close(handle)
