"""A task: model, data and training recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from remanence.data import Examples, Split
from remanence.tasks.randomness import derive_seed
from remanence.tasks.recipe import Recipe
from remanence.types import ForgetSet


@dataclass(frozen=True, eq=False)
class Task:
    """How to build a model, its data, and how to train it.

    Args:
        model: function that builds a new, untrained module.
        train: the training examples.
        test: the test examples.
        recipe: how to train.
    """

    model: Callable[[], nn.Module]
    train: Examples
    test: Examples
    recipe: Recipe

    def new_model(self, seed: int) -> nn.Module:
        """A new module whose initial weights depend only on the seed; does not change torch's random state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "weights"))
            return self.model()

    def split(self, forget_set: ForgetSet) -> Split:
        """The data, split by a forget set."""
        return Split(self.train, self.test, forget_set)
