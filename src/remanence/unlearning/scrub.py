"""SCRUB: distillation from the original model on the retain set, and away from it on the forget set."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from remanence.batches import Batch, call, size_of
from remanence.data import Split
from remanence.errors import InputError
from remanence.losses import class_logits
from remanence.training import SINGLE_PROCESS, BatchLoss, BatchStream, Objective, Ranks, Term, Training
from remanence.types import check_positive
from remanence.unlearning.distillation import output_distance
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class Scrub(Method):
    r"""Unlearn by distillation from the original model, with the opposite sign on the forget set.

    Formula: with :math:`d(x; w) = \tau^2\, \mathrm{KL}(p_\tau(x; w_{original}) \,\Vert\, p_\tau(x; w))`, softmax at
    temperature τ, each of the first `max_epochs` epochs first passes over the forget set with ascent on :math:`d`, then
    over the retain set with descent on :math:`\alpha\, d(x; w) + \gamma\, \ell(w, x)`. The later epochs only descend,
    which repairs the damage of the ascent. The ascent begins at :math:`d = 0`, where the gradient is 0 as well; weight
    decay, dropout, BatchNorm or the first descent move the weights away from there.

    Args:
        recipe: hyperparameters of training; an epoch ends with a pass over the retain set.
        max_epochs: number of epochs with ascent, at most `recipe.epochs`.
        alpha: weight of the distance to the teacher on the retain set.
        gamma: weight of the loss on the retain set.
        temperature: temperature τ of the softmax.

    Source: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023.

    Departs: the batch size of the forget set is that of the recipe, while the authors tune it. There is no "rewind" to
    an earlier checkpoint (SCRUB+R); the caller measures and stops. Where the outputs are not classes, :math:`d` is half
    the squared distance of the outputs. The teacher is a frozen copy in evaluation mode; the
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

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        distance = self._distance(copy.deepcopy(model).eval().requires_grad_(False))

        def retain_loss(outputs: Any, inputs: Batch, labels: Batch) -> Tensor:
            loss = split.retain.readout.losses(outputs, labels, size_of(labels))
            return self.alpha * distance(outputs, inputs, labels) + self.gamma * loss

        forget = BatchStream(split.forget, self.recipe, seed, "-forget")
        retain = BatchStream(split.retain, self.recipe, seed)
        n_forget, n_retain = forget.batches_per_epoch, retain.batches_per_epoch

        def terms(step: int) -> Sequence[Term]:
            epoch, batch = divmod(step, n_forget + n_retain)
            if epoch >= self.max_epochs:
                return [Term(retain, step - self.max_epochs * n_forget, loss=retain_loss)]
            if batch < n_forget:
                return [Term(forget, epoch * n_forget + batch, -1.0, distance)]
            return [Term(retain, epoch * n_retain + batch - n_forget, loss=retain_loss)]

        epochs = self.recipe.epochs
        total = epochs * n_retain + self.max_epochs * n_forget
        objective = Objective(terms, -(-total // epochs), total)
        return Training(model, split.train, self.recipe, seed=seed, ranks=ranks, objective=objective)

    def _distance(self, teacher: nn.Module) -> BatchLoss:
        def distance(outputs: Any, inputs: Batch, labels: Batch) -> Tensor:
            with torch.no_grad():
                target = call(teacher, inputs)
            classes = class_logits(outputs, labels) is not None
            return output_distance(outputs, target, classes=classes, temperature=self.temperature)

        return distance
