"""A model by its name, or by the place of the function that makes it."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from torch import nn

from remanence.errors import InputError, UnknownNameError


class Described(Protocol):
    """What a model must know of the examples it is made for; `remanence.data.Examples` is one."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes."""


def made_model(
    spec: str, known: Mapping[str, Callable[..., nn.Module]], examples: Described, options: Mapping[str, Any]
) -> nn.Module:
    """The model that `spec` names, by the functions in `known` or by one of the user's own."""
    make = _imported(spec) if ":" in spec else _known(spec, known)
    parameters = inspect.signature(make).parameters
    filled = {name: value for name, value in _facts(examples).items() if name in parameters}
    arguments = filled | dict(options)
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        takes = ", ".join(map(str, parameters.values())) or "nothing"
        raise InputError(f"Model {spec!r} cannot be made: {error}; it takes {takes}.") from None
    model = make(**arguments)
    if not isinstance(model, nn.Module):
        raise InputError(f"Model {spec!r} must give a torch.nn.Module; it gave a {type(model).__name__}.")
    return model


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """`width=8 norm=group hidden=(64,64)` as keyword options; what is no Python literal is text."""
    options = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip().isidentifier():
            raise InputError(f"An option must read name=value; got {pair!r}.")
        try:
            options[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            options[name.strip()] = value.strip()
    return options


def _known(name: str, known: Mapping[str, Callable[..., nn.Module]]) -> Callable[..., Any]:
    if name not in known:
        raise UnknownNameError("model", name, [*known, "package.module:function"])
    return known[name]


def _imported(spec: str) -> Callable[..., Any]:
    place, _, name = spec.partition(":")
    module = _module(place, spec)
    found: Any = getattr(module, name, None)
    if not callable(found):
        raise InputError(f"Model {spec!r} must name a function; {place} has no function {name!r}.")
    make: Callable[..., Any] = found
    return make


def _module(place: str, spec: str) -> ModuleType:
    """Import it, from the current folder too, as `python -m` would."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return import_module(place)
    except (ImportError, ValueError) as error:  # ValueError: an empty or relative name
        raise InputError(f"Model {spec!r} must name a module that can be imported: {error}.") from error
    finally:
        if added:
            sys.path.remove(here)


def _facts(examples: Described) -> dict[str, int]:
    shape = examples.input_shape
    facts = {"num_classes": len(examples.class_names), "in_features": math.prod(shape)}
    return facts | ({"in_channels": shape[0], "image": shape[-1]} if len(shape) == 3 else {})
