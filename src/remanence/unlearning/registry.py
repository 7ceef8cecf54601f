"""The unlearning methods by name, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_type_hints

from remanence.errors import UnknownNameError
from remanence.storage.table_reading import check_value
from remanence.training import Recipe
from remanence.unlearning.deletion_by_localization import Del
from remanence.unlearning.finetune import Finetune
from remanence.unlearning.gradient_ascent import GradientAscent
from remanence.unlearning.l1_sparse import L1Sparse
from remanence.unlearning.method import Method
from remanence.unlearning.msg import Msg
from remanence.unlearning.neggrad_plus import NegGradPlus
from remanence.unlearning.noisy_finetune import NoisyFinetune
from remanence.unlearning.out_of_fold import OutOfFold
from remanence.unlearning.random_label import RandomLabel
from remanence.unlearning.reset import Reset
from remanence.unlearning.retrain import Retrain
from remanence.unlearning.routed import Routed
from remanence.unlearning.salun import SalUn
from remanence.unlearning.scrub import Scrub
from remanence.unlearning.shrink_perturb import ShrinkPerturb

METHODS: dict[str, type[Method]] = {
    "retrain": Retrain,
    "finetune": Finetune,
    "noisy_finetune": NoisyFinetune,
    "l1_sparse": L1Sparse,
    "gradient_ascent": GradientAscent,
    "neggrad_plus": NegGradPlus,
    "random_label": RandomLabel,
    "scrub": Scrub,
    "salun": SalUn,
    "reset": Reset,
    "shrink_perturb": ShrinkPerturb,
    "out_of_fold": OutOfFold,
    "routed": Routed,
    "msg": Msg,
    "del": Del,
}
"""The unlearning methods by name. The docstring of each class gives formula, options and source."""
_SHORT = {"lr": "learning_rate"}
_NOISE = {"noise", "langevin"}
_NOT_OPTIONS = {"recipe", "make_model"}


def method_named(name: str) -> type[Method]:
    if name not in METHODS:
        raise UnknownNameError("unlearning method", name, METHODS)
    return METHODS[name]


def option_names(name: str) -> set[str]:
    """Names of the options of a method: its own hyperparameters and those of its recipe."""
    method = method_named(name)
    own = {field.name for field in fields(method)} - _NOT_OPTIONS
    recipe = {field.name for field in fields(Recipe)}
    return own | (recipe if method is NoisyFinetune else recipe - _NOISE)


def full_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with short names replaced by full ones."""
    return {_SHORT.get(option, option): value for option, value in options.items()}


def make_method(name: str, options: Mapping[str, Any], training: Recipe) -> Method:
    """Make an unlearning method with these options. Other hyperparameters are those of its paper or of training.

    Args:
        name: name of the method, one of `METHODS`.
        options: hyperparameters of the method or of its recipe; `lr` is short for `learning_rate`.
        training: the recipe with which the model was trained.
    """
    method = method_named(name)
    known = option_names(name)
    given = full_names(options)
    for option in given:
        if option not in known:
            raise UnknownNameError(f"option of {name}", option, known | _SHORT.keys())
    in_recipe = {field.name for field in fields(Recipe)}
    for option, value in given.items():
        check_value(value, get_type_hints(Recipe if option in in_recipe else method)[option], option)
    recipe = replace(
        method.default_recipe(training), **{key: value for key, value in given.items() if key in in_recipe}
    )
    return method(recipe, **{key: value for key, value in given.items() if key not in in_recipe})
