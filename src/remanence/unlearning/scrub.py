"""A student that disobeys its teacher on the forget set and obeys it elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import ALONE, BatchLoss, Objective, Ranks, Stream, Term, Training
from remanence.types import check_positive
from remanence.unlearning.contract import Method


@dataclass(frozen=True)
class Scrub(Method):
    r"""Unlearn by distillation from the original model, with the sign turned on the forget set.

    Formula: with :math:`d(x; w) = \tau^2\, \mathrm{KL}(p_\tau(x; w_{original}) \,\Vert\, p_\tau(x; w))`, softmax at
    temperature τ, each of the first `max_epochs` epochs first passes over the forget set climbing :math:`d`, then over
    the retain set descending :math:`\alpha\, d(x; w) + \gamma\, \ell(w, x)`; the epochs after that only descend, which
    mends what the climbing broke. The climb begins at :math:`d = 0`, where the gradient is 0 too: what gets it off the
    ground is weight decay, dropout, BatchNorm, or the first descent.

    Args:
        recipe: an epoch ends with a pass over the retain set.
        max_epochs: how many epochs climb, at most `recipe.epochs`.
        alpha: weight of the teacher on the retain set.
        gamma: weight of the labels on the retain set.
        temperature: τ.

    Source: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023.

    Departs: the batch size of the forget set is the recipe's, where the authors tune it; without their "rewind" to an
    earlier checkpoint (SCRUB+R): the caller measures and stops. The teacher is a frozen copy in evaluation mode; the
    student is in training mode in both phases.
    """

    max_epochs: int = 2
    alpha: float = 0.5
    gamma: float = 1.0
    temperature: float = 2.0

    EPOCHS: ClassVar[int] = 5
    SEARCH: ClassVar = {"learning_rate": (1e-4, 1e-1)}

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        if not 1 <= self.max_epochs <= self.recipe.epochs:
            raise InputError(
                f"`max_epochs` must be between 1 and the number of epochs, {self.recipe.epochs}; got {self.max_epochs}."
            )
        for name in ("alpha", "gamma"):
            if not getattr(self, name) >= 0:
                raise InputError(f"`{name}` must not be negative; got {getattr(self, name)}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """Passes over forget and retain set in turn."""
        distance = self._distance(copy.deepcopy(model).eval().requires_grad_(False))

        def obey(outputs: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
            loss = F.cross_entropy(outputs, labels, reduction="none")
            return self.alpha * distance(outputs, inputs, labels) + self.gamma * loss

        forget = Stream(split.forget, self.recipe, seed, "-forget")
        retain = Stream(split.retain, self.recipe, seed)
        up, down = forget.batches_per_pass, retain.batches_per_pass

        def terms(step: int) -> Sequence[Term]:
            epoch, place = divmod(step, up + down)
            if epoch >= self.max_epochs:
                return [Term(retain, step - self.max_epochs * up, loss=obey)]
            if place < up:
                return [Term(forget, epoch * up + place, -1.0, distance)]
            return [Term(retain, epoch * down + place - up, loss=obey)]

        epochs = self.recipe.epochs
        total = epochs * down + self.max_epochs * up
        objective = Objective(terms, -(-total // epochs), total)
        return Training(model, split.train, self.recipe, seed=seed, ranks=ranks, objective=objective)

    def _distance(self, teacher: nn.Module) -> BatchLoss:
        heat = self.temperature

        def distance(outputs: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
            with torch.no_grad():
                wanted = F.log_softmax(teacher(inputs) / heat, dim=1)
            found = F.log_softmax(outputs / heat, dim=1)
            return heat**2 * F.kl_div(found, wanted, reduction="none", log_target=True).sum(dim=1)

        return distance
