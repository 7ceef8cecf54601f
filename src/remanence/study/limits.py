"""What numbers and lists of a study's settings must be at least."""

from __future__ import annotations

from typing import Any

from remanence.errors import InputError
from remanence.types import check_positive


def positive(settings: Any, *names: str) -> None:
    """Finite and above 0, each one where it is several."""
    for name in names:
        value = getattr(settings, name)
        for each in value if isinstance(value, tuple) else (value,):
            check_positive(name, each)


def at_least(least: int, settings: Any, *names: str) -> None:
    """So many, or more."""
    for name in names:
        if getattr(settings, name) < least:
            raise InputError(f"`{name}` must be at least {least}; got {getattr(settings, name)}.")


def distinct(settings: Any, *names: str) -> None:
    """Each named once."""
    for name in names:
        value = getattr(settings, name)
        if len(set(value)) < len(value):
            raise InputError(f"`{name}` must name each once; got {list(value)}.")


def not_empty(settings: Any, *names: str) -> None:
    """One at least."""
    for name in names:
        if not getattr(settings, name):
            raise InputError(f"`{name}` must name at least one; got none.")
