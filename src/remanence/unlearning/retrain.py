"""Retraining from scratch without the forget set: exact unlearning, the reference for all other methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from remanence.batches import device_of
from remanence.data import Split
from remanence.errors import InputError
from remanence.tasks.randomness import derive_seed
from remanence.training import SINGLE_PROCESS, Ranks, Recipe, Training
from remanence.unlearning.method import Method
from remanence.unlearning.new_weights import MakeModel, redraw


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

    make_model: MakeModel | None = None

    SEARCH: ClassVar = {}

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        device = device_of(model)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(seed, "weights"))
            if self.make_model is None:
                reset_weights(
                    model.cpu(), "pass `make_model`"
                )  # on the CPU: the same weights on every device
            else:
                model.load_state_dict(self.make_model().state_dict())
        model.to(device)
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks)

    @classmethod
    def default_recipe(cls, training: Recipe) -> Recipe:
        """The recipe of training, unchanged."""
        return training


def reset_weights(model: nn.Module, otherwise: str) -> None:
    """Draw new initial weights for every layer.

    Args:
        model: the model; changed.
        otherwise: what the caller can do if a layer has no `reset_parameters`, for the error.
    """
    for name, kind in redraw(model).items():
        raise InputError(
            f"New weights cannot be drawn for {name or 'the model'} ({kind} has no `reset_parameters`); {otherwise}."
        )
