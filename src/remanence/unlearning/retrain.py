"""Retraining from scratch without the forget set: the oracle that the others are measured against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.tasks.randomness import derive_seed
from remanence.training import ALONE, Ranks, Recipe, Training
from remanence.unlearning.contract import Method


@dataclass(frozen=True)
class Retrain(Method):
    r"""Forget everything, then learn again what may be kept.

    Formula: :math:`w_0` drawn anew, then plain training on :math:`D \setminus D_F`. Exact by construction, and the most
    expensive.

    Args:
        recipe: that of the original training.
        make_model: makes a new model with random weights. Without it, every layer must be able to `reset_parameters`,
            as torch's own can.

    Source: the definition of exact unlearning (Cao and Yang, S&P 2015; Bourtoule et al., S&P 2021).
    """

    make_model: Callable[[], nn.Module] | None = None

    SEARCH: ClassVar = {}

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """Plain training on the retain set from new weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "weights"))
            if self.make_model is None:
                _start_anew(model)
            else:
                model.load_state_dict(self.make_model().state_dict())
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks)

    @classmethod
    def usual_recipe(cls, training: Recipe) -> Recipe:
        """As the model was trained."""
        return training


def _start_anew(model: nn.Module) -> None:
    for name, module in model.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
        elif any(True for _ in module.parameters(recurse=False)):
            raise InputError(
                f"retrain cannot draw new weights for {name or 'the model'} ({type(module).__name__} has no "
                "`reset_parameters`); give it `make_model`."
            )
