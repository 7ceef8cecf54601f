"""Build a model from its name, or from the import path of a function."""

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
    """Shape and outputs of the data that a model is built for; `remanence.data.Examples` is one."""

    @property
    def input_shape(self) -> tuple[int, ...]: ...

    @property
    def n_outputs(self) -> int: ...


def build_model(spec: str, examples: DataShape, **options: Any) -> nn.Module:
    """Build a new model for these examples.

    Args:
        spec: a name in `MODELS`, or `package.module:function` for your own.
        examples: the data. Shape and outputs are passed to the function under the argument names `in_channels`,
            `in_features`, `image` (width of a square image) and `num_classes` (1 if the label is a number), if it has
            them.
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
    if spec in MODELS:
        _check_inputs(spec, signature, examples.input_shape)
    _check_outputs(arguments.get("num_classes"), examples.n_outputs)
    model = _built(spec, function, signature, arguments, options)
    if not isinstance(model, nn.Module):
        raise InputError(f"Model {spec!r} must be a torch.nn.Module; got a {type(model).__name__}.")
    return model


def _built(
    spec: str,
    function: Callable[..., Any],
    signature: inspect.Signature,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    """Call the function; if one of the user's options has a wrong type or value, say which ones they are."""
    try:
        return function(**arguments)
    except InputError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, RuntimeError) as error:
        if not options:
            raise
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        accepted = ", ".join(
            str(signature.parameters[name]) for name in options if name in signature.parameters
        )
        raise InputError(
            f"Model {spec!r} cannot be built with {given}: {error}. Expected {accepted.replace(chr(39), '')}."
        ) from error


def _check_inputs(spec: str, signature: inspect.Signature, shape: tuple[int, ...]) -> None:
    if "in_channels" in signature.parameters and len(shape) != 3:
        usable = [
            name
            for name, function in MODELS.items()
            if "in_features" in inspect.signature(function).parameters
        ]
        raise InputError(
            f"Model {spec!r} must be given images [channels, height, width]; the inputs have shape {list(shape)}. Use "
            f"{' or '.join(usable)}, or your own model."
        )
    if "image" in signature.parameters and shape[-2] != shape[-1]:
        raise InputError(
            f"Model {spec!r} must be given square images; got {shape[-2]} × {shape[-1]} pixels. Crop or pad them, or "
            "use resnet18."
        )


def _check_outputs(num_classes: Any, n_outputs: int) -> None:
    if isinstance(num_classes, int) and num_classes < n_outputs:
        raise InputError(
            f"`num_classes` must be at least the {n_outputs} outputs that the labels need; got {num_classes}."
        )


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
    function = import_object(spec, "Model")
    if not callable(function):
        raise InputError(f"Model {spec!r} must name a function; it names a {type(function).__name__}.")
    return function  # type: ignore[no-any-return]


def import_object(spec: str, kind: str) -> Any:
    """The object that `package.module:name` names; `kind` is what the error calls it."""
    module_name, _, name = spec.partition(":")
    module = _import_module(module_name, spec, kind)
    if not hasattr(module, name):
        raise InputError(f"{kind} {spec!r} must name something in {module_name}; it has no {name!r}.")
    return getattr(module, name)


def _import_module(name: str, spec: str, kind: str) -> ModuleType:
    """Import a module, also from the current folder, as `python -m` would."""
    current = str(Path.cwd())
    added = current not in sys.path
    if added:
        sys.path.insert(0, current)
    try:
        return import_module(name)
    except (ImportError, ValueError) as error:  # ValueError: an empty or relative name
        raise InputError(f"{kind} {spec!r} must name a module that can be imported: {error}.") from error
    finally:
        if added:
            sys.path.remove(current)


def _sizes(examples: DataShape) -> dict[str, int]:
    shape = examples.input_shape
    sizes = {"num_classes": examples.n_outputs, "in_features": math.prod(shape)}
    return sizes | ({"in_channels": shape[0], "image": shape[-1]} if len(shape) == 3 else {})
