"""Every error that Remanence raises on purpose.

RemanenceError
├── InputError            an invalid argument or file (also a ValueError); a command exits with 2
│   ├── UnknownNameError      an unknown name; suggests the nearest known one
│   ├── DataError             a data set, an id or a file of examples that is missing or malformed
│   └── RunFolderError        a folder that is not a run, is damaged, or was made by a newer version
└── NumericalError        NaN or divergence in a computation; a command exits with 1

DataWarning (a UserWarning) is for data that are unusual but can be used.

A message says what is expected, what it got instead, and what to do about it.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""Error codes of the operating system for a full disk."""
UNREADABLE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
    errno.EFBIG,
    errno.ENXIO,
    errno.ENODEV,
)
"""Error codes of the operating system for a path that names no file that could be read."""


class RemanenceError(Exception):
    """Base class of every error that Remanence raises on purpose."""


class InputError(RemanenceError, ValueError):
    """An invalid argument or file."""


class UnknownNameError(InputError):
    """An unknown name, such as that of a model or a metric; the message suggests the nearest known one."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(names)}."
        super().__init__(f"There is no {kind} named {name!r}. {hint}")


class DataError(InputError):
    """Examples, labels or ids that are missing or malformed."""


class RunFolderError(InputError):
    """A folder that is not a run, is damaged, or was made by a newer version."""


class NumericalError(RemanenceError):
    """A computation that diverged or gave NaN."""


class DataWarning(UserWarning):
    """Data that differ from the official ones, but can be used."""
