"""A method by its name and options, as a command or a tuner gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_type_hints

from remanence.errors import InputError, UnknownNameError
from remanence.training import Recipe
from remanence.unlearning.contract import Method
from remanence.unlearning.noisy_finetune import NoisyFinetune
from remanence.unlearning.registry import method_named

_SHORT = {"lr": "learning_rate"}
_NOISE = {"noise", "langevin"}
_NOT_OPTIONS = {"recipe", "make_model"}
_KINDS = {float: (int, float), int: (int,), bool: (bool,)}
_WORDS = {float: "a number", int: "a whole number", bool: "True or False"}


def option_names(name: str) -> set[str]:
    """What can be set of a method: its own hyperparameters and those of its recipe."""
    method = method_named(name)
    own = {field.name for field in fields(method)} - _NOT_OPTIONS
    recipe = {field.name for field in fields(Recipe)}
    return own | (recipe if method is NoisyFinetune else recipe - _NOISE)


def full_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, short names written out."""
    return {_SHORT.get(option, option): value for option, value in options.items()}


def make_method(name: str, options: Mapping[str, Any], training: Recipe) -> Method:
    """A method with these options; what is not said is as the method's source has it, or as the model was trained.

    Args:
        name: of the method.
        options: hyperparameters of the method or of its recipe; `lr` is short for `learning_rate`.
        training: how the model was trained.
    """
    method = method_named(name)
    known = option_names(name)
    given = full_names(options)
    for option in given:
        if option not in known:
            raise UnknownNameError(f"option of {name}", option, known | _SHORT.keys())
    in_recipe = {field.name for field in fields(Recipe)}
    for option, value in given.items():
        _check_kind(option, value, get_type_hints(Recipe if option in in_recipe else method)[option])
    recipe = replace(
        method.usual_recipe(training), **{key: value for key, value in given.items() if key in in_recipe}
    )
    return method(recipe, **{key: value for key, value in given.items() if key not in in_recipe})


def _check_kind(option: str, value: Any, kind: Any) -> None:
    allowed = _KINDS.get(kind)
    if allowed is None:
        return
    if not isinstance(value, allowed) or (kind is not bool and isinstance(value, bool)):
        raise InputError(f"`{option}` must be {_WORDS[kind]}; got {value!r}.")
