"""A task: everything that Remanence must know about a model's world."""

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
    """How to build a model, what to train it on, and how.

    Args:
        model: builds a new, untrained module.
        train: the training examples.
        test: the held-out examples.
        recipe: how models of this task are trained.
    """

    model: Callable[[], nn.Module]
    train: Examples
    test: Examples
    recipe: Recipe

    def new_model(self, seed: int) -> nn.Module:
        """A module with the initial weights of this seed; the caller's random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "weights"))
            return self.model()

    def split(self, forget_set: ForgetSet) -> Split:
        """The data with a forget set."""
        return Split(self.train, self.test, forget_set)
