"""Each example of a forget set is unlearned as its privacy loss asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.training import SINGLE_PROCESS, BatchStream, Objective, Ranks, Training, mean_loss
from remanence.types import check_positive
from remanence.unlearning.fold_targets import read_fold_targets
from remanence.unlearning.method import Method
from remanence.unlearning.out_of_fold import toward_folds
from remanence.unlearning.reset import check_reset, distilled, reset_units
from remanence.unlearning.shrink_perturb import shrink_and_perturb


@dataclass(frozen=True)
class Routed(Method):
    r"""Unlearn easy, middle and hard examples of one forget set in three ways, by their privacy losses.

    Formula: examples with a loss below `easy` are only left out. Those from `easy` on are drawn towards the outputs of
    models that never saw them, as `OutOfFold` does. For those from `hard` on, weights are drawn anew before the first
    step instead: the units that carry them, as `Reset` does, or all, as `ShrinkPerturb` does. All steps train on the
    retain set; after a reset with a part of the loss from the original model, as `Reset` does. If no example is hard,
    the learning rate is a part of that of training: outputs are reached in a few steps, and the full rate would cost
    accuracy.

    Args:
        recipe: hyperparameters of training; the learning rate is that of training.
        targets: a folder with outputs of fold models and with privacy losses: a calibration.
        easy: examples with a smaller privacy loss need nothing.
        hard: examples with this privacy loss or a larger one need new weights; None for no example.
        harder: how weights are drawn anew.
        fraction: fraction of each layer's units that `reset` draws anew.
        distillation: weight of the distance to the original model after `reset`.
        weight: weight of the examples that are drawn towards outputs.
        gentle: factor of the learning rate if no weights are drawn anew.

    Source: ours. `remanence calibrate` finds the two losses.
    """

    targets: str = ""
    easy: float = 0.0
    hard: float | None = None
    harder: Literal["reset", "shrink_perturb"] = "reset"
    fraction: float = 0.3
    distillation: float = 0.5
    weight: float = 1.0
    gentle: float = 0.4

    EPOCHS: ClassVar[int] = 10
    LEARNING_RATE: ClassVar = None
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (1e-3, 0.5),
        "fraction": (0.1, 0.9),
    }

    def __post_init__(self) -> None:
        if not self.targets:
            raise InputError(
                "routed needs `targets`: a calibration, with outputs of models and privacy losses."
            )
        check_reset(self.fraction, self.distillation)
        check_positive("weight", self.weight)
        check_positive("gentle", self.gentle)

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        losses = read_fold_targets(Path(self.targets)).losses_of(split.forget.ids)
        hard = losses >= (np.inf if self.hard is None else self.hard)
        drawn = (losses >= self.easy) & ~hard
        retain = BatchStream(split.retain, self.recipe, seed)
        objective = self._new_weights(retain, model, split, hard, seed) if hard.any() else mean_loss(retain)
        if drawn.any():
            ids = split.forget.ids
            forget = toward_folds(_part(split, drawn), self.recipe, seed, self.targets, self.weight, ids)
            before = objective.terms
            objective = replace(objective, terms=lambda step: [*before(step), forget(step)])
        rate = self.recipe.learning_rate * (1.0 if hard.any() else self.gentle)
        recipe = replace(self.recipe, learning_rate=rate)
        return Training(model, split.train, recipe, seed=seed, ranks=ranks, objective=objective)

    def _new_weights(
        self, retain: BatchStream, model: nn.Module, split: Split, hard: NDArray[np.bool_], seed: int
    ) -> Objective:
        if self.harder == "shrink_perturb":
            return replace(mean_loss(retain), before_first_step=shrink_and_perturb(model, seed))
        loss = distilled(model, split.retain, self.distillation)
        change = reset_units(model, _part(split, hard), self.fraction, seed)
        return replace(mean_loss(retain, loss=loss), before_first_step=change)


def _part(split: Split, chosen: NDArray[np.bool_]) -> Examples:
    return split.forget.take(split.forget.ids[chosen])
