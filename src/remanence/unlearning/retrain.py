"""Retraining from scratch without the forget set: exact unlearning, the reference for all other methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.tasks.randomness import derive_seed
from remanence.training import SINGLE_PROCESS, Ranks, Recipe, Training
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class Retrain(Method):
    r"""Unlearn by retraining from new random weights on the retain set.

    Formula: new random :math:`w_0`, then plain training on :math:`D \setminus D_F`. Exact by construction, and the most
    expensive method.

    Args:
        recipe: hyperparameters of training; by default those of the original training.
        make_model: builds a new model with random weights. Without it, every layer needs a method `reset_parameters`,
            which the layers of torch have.

    Source: the definition of exact unlearning (Cao and Yang, S&P 2015; Bourtoule et al., S&P 2021).
    """

    make_model: Callable[[], nn.Module] | None = None

    SEARCH: ClassVar = {}

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "weights"))
            if self.make_model is None:
                _reset_weights(model)
            else:
                model.load_state_dict(self.make_model().state_dict())
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks)

    @classmethod
    def default_recipe(cls, training: Recipe) -> Recipe:
        """The recipe of training, unchanged."""
        return training


def _reset_weights(model: nn.Module) -> None:
    for name, module in model.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
        elif any(True for _ in module.parameters(recurse=False)):
            raise InputError(
                f"retrain cannot draw new weights for {name or 'the model'} ({type(module).__name__} has no "
                "`reset_parameters`); pass `make_model`."
            )
