"""Every error that Remanence raises on purpose.

RemanenceError
├── InputError            what the caller gave cannot be right (also a ValueError); the command exits with 2
│   ├── UnknownNameError      a name that is in no registry; suggests the nearest
│   ├── DataError             a data set, an id or a file of examples that is missing or malformed
│   └── RunFolderError        a folder that is not a run, is damaged, or was made by a newer version
└── NumericalError        a computation left the numbers (NaN, divergence); the command exits with 1

DataWarning (a UserWarning) is for data that can be used and is not what it should be: it is said, nothing stops.

A message says what must hold, what was found, and what to do about it.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""What the system's errors say when there is no room left."""


class RemanenceError(Exception):
    """Base of every error raised on purpose."""


class InputError(RemanenceError, ValueError):
    """An argument, option or file that cannot be right."""


class UnknownNameError(InputError):
    """A name that no registry holds."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(names)}."
        super().__init__(f"There is no {kind} named {name!r}. {hint}")


class DataError(InputError):
    """Examples, labels or ids that are missing or malformed."""


class RunFolderError(InputError):
    """A folder that is not what it should be."""


class NumericalError(RemanenceError):
    """Numbers that stopped being numbers."""


class DataWarning(UserWarning):
    """Data that differ from what they claim to be, yet can be used."""
