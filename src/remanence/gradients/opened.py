"""Functions of torch written in Python, opened up so that a function mode sees the calls inside them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

_NAMES = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def is_composite(func: Callable[..., Any]) -> bool:
    """Whether a function is Python over further torch calls, such as `multi_head_attention_forward`.

    Functions with a closure only switch between two others, which hand back to the switch: left whole.
    """
    return (
        isinstance(func, types.FunctionType)
        and not func.__closure__
        and func.__module__
        in (
            "torch.nn.functional",
            "torch.functional",
        )
    )


@functools.cache
def opened(func: types.FunctionType) -> Callable[..., Any]:
    """The same code, but without the question at its top that hands the whole call to the mode."""
    names = {**func.__globals__, **{name: _nobody for name in _NAMES if name in func.__globals__}}
    twin = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    twin.__kwdefaults__ = func.__kwdefaults__
    return twin


def _nobody(*args: Any) -> bool:
    return False
