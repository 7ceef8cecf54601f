"""Build a model from its name, or from the import path of a function."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from torch import nn

from remanence.errors import InputError, UnknownNameError
from remanence.models.resnet import resnet18
from remanence.models.simple import logistic, mlp, small_conv
from remanence.models.vit import vit_small

MODELS: dict[str, Callable[..., nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "resnet18": resnet18,
    "small_conv": small_conv,
    "vit_small": vit_small,
}


class DataShape(Protocol):
    """Shape and classes of the data that a model is built for; `remanence.data.Examples` is one."""

    @property
    def input_shape(self) -> tuple[int, ...]: ...

    @property
    def class_names(self) -> tuple[str, ...]: ...


def build_model(spec: str, examples: DataShape, **options: Any) -> nn.Module:
    """Build a new model for these examples.

    Args:
        spec: a name in `MODELS`, or `package.module:function` for your own.
        examples: the data. Shape and classes are passed to the function under the argument names `in_channels`,
            `in_features`, `image` (width of a square image) and `num_classes`, if it has them.
        options: further arguments of the function; they take precedence.
    """
    function = _import_function(spec) if is_import_path(spec) else _registered(spec)
    signature = inspect.signature(function)
    defaults = {name: n for name, n in _sizes(examples).items() if name in signature.parameters}
    arguments = defaults | options
    try:
        signature.bind(**arguments)
    except TypeError as error:
        accepted = ", ".join(map(str, signature.parameters.values())) or "nothing"
        raise InputError(f"Model {spec!r} cannot be built: {error}; it takes {accepted}.") from None
    model = function(**arguments)
    if not isinstance(model, nn.Module):
        raise InputError(f"Model {spec!r} must be a torch.nn.Module; got a {type(model).__name__}.")
    return model


def is_import_path(spec: str) -> bool:
    """Whether this names code outside of Remanence, `package.module:function`."""
    return ":" in spec


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse `width=8 norm=group hidden=(64,64)` into keyword arguments; values that are not literals are text."""
    options = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip().isidentifier():
            raise InputError(f"An option must have the form name=value; got {pair!r}.")
        try:
            options[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            options[name.strip()] = value.strip()
    return options


def _registered(name: str) -> Callable[..., Any]:
    if name not in MODELS:
        raise UnknownNameError("model", name, [*MODELS, "package.module:function"])
    return MODELS[name]


def _import_function(spec: str) -> Callable[..., Any]:
    module_name, _, name = spec.partition(":")
    function: Any = getattr(_import_module(module_name, spec), name, None)
    if not callable(function):
        raise InputError(f"Model {spec!r} must name a function; {module_name} has no function {name!r}.")
    return function  # type: ignore[no-any-return]


def _import_module(name: str, spec: str) -> ModuleType:
    """Import a module, also from the current folder, as `python -m` would."""
    current = str(Path.cwd())
    added = current not in sys.path
    if added:
        sys.path.insert(0, current)
    try:
        return import_module(name)
    except (ImportError, ValueError) as error:  # ValueError: an empty or relative name
        raise InputError(f"Model {spec!r} must name a module that can be imported: {error}.") from error
    finally:
        if added:
            sys.path.remove(current)


def _sizes(examples: DataShape) -> dict[str, int]:
    shape = examples.input_shape
    sizes = {"num_classes": len(examples.class_names), "in_features": math.prod(shape)}
    return sizes | ({"in_channels": shape[0], "image": shape[-1]} if len(shape) == 3 else {})
