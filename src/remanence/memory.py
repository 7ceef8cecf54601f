"""Keep the memory that torch frees: on Linux, training on a CPU otherwise spends much of its time getting it back."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Numbers of the parameters in glibc's malloc.h."""
_SETTINGS = {_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 1 << 30, _TOP_PAD: 64 << 20}
"""32 MiB is the largest threshold that glibc accepts."""


def keep_freed_memory() -> bool:
    """Let this process reuse memory that was freed, instead of returning it to the system and asking for it again.

    Torch allocates the output of every operation anew. By default the C library returns blocks of a few MiB to the
    system as soon as they are free, and the system clears every page before it hands it out again, in each training
    step. With this, blocks of up to 32 MiB are reused and at most 1 GiB stays with the process when it is free. No
    result changes.

    The command `remanence` and its workers call this; a training loop of your own gains as much from it. Call it once,
    before training.

    Returns:
        Whether the C library accepted it. It does nothing where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # no glibc; on Windows there is no library of this process
        return False
    return all(mallopt(name, value) == 1 for name, value in _SETTINGS.items())
