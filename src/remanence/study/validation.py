"""Checks of a study's settings."""

from __future__ import annotations

from typing import Any

from remanence.errors import InputError
from remanence.types import check_positive


def positive(settings: Any, *names: str) -> None:
    """Validate that settings are finite and above 0; of a tuple, every value."""
    for name in names:
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            check_positive(name, number)


def at_least(least: int, settings: Any, *names: str) -> None:
    """Validate that settings are at least a minimum."""
    for name in names:
        if getattr(settings, name) < least:
            raise InputError(f"`{name}` must be at least {least}; got {getattr(settings, name)}.")


def share(settings: Any, *names: str) -> None:
    """Validate that settings are between 0 and 1."""
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise InputError(f"`{name}` must be between 0 and 1; got {getattr(settings, name)}.")


def distinct(settings: Any, *names: str) -> None:
    """Validate that no value appears twice."""
    for name in names:
        value = getattr(settings, name)
        if len(set(value)) < len(value):
            raise InputError(f"`{name}` must name each once; got {list(value)}.")


def not_empty(settings: Any, *names: str) -> None:
    """Validate that a tuple has at least one value."""
    for name in names:
        if not getattr(settings, name):
            raise InputError(f"`{name}` must name at least one; got none.")
