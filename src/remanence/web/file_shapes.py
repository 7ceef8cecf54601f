"""Shapes of files that may be damaged or forged, and of which a page shows single fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

_LARGEST = 10**15
Shape = Mapping[str, Callable[[Any], bool]]
"""The fields that an object must have, each with the test of its value."""


def has_shape(value: Any, shape: Shape) -> bool:
    """Whether a value is an object with these fields, each of which passes its test."""
    return isinstance(value, dict) and all(
        name in value and is_valid(value[name]) for name, is_valid in shape.items()
    )


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    return type(value) is bool


def is_number(value: Any) -> bool:
    """Whether it is a number that can be shown; infinite ones can, and integers that fit a float."""
    return (type(value) is float and not math.isnan(value)) or (type(value) is int and abs(value) < _LARGEST)


def is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)
