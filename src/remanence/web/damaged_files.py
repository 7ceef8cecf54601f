"""Files of runs that may be damaged or forged: what is wrong with one is said in a sentence, beside its run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError

from remanence.errors import DataError, RemanenceError

_LARGEST = 10**15
Shape = Mapping[str, Callable[[Any], bool]]
"""The fields that an object must have, each with the test of its value."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what wrong types and missing fields in the files of a folder raise into one sentence.

    An error of the operating system is left alone: the disk is at fault then, not the content.
    """
    try:
        yield
    except (RemanenceError, OSError):
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, UndefinedError) as error:
        raise DataError(
            f"{path} is not as Remanence writes it: it is damaged, or was changed by hand."
        ) from error


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
