"""NegGrad+: gradient descent on the retain set and gradient ascent on the forget set at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import SINGLE_PROCESS, BatchStream, Ranks, Term, Training, mean_loss
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class NegGradPlus(Method):
    r"""Unlearn by gradient ascent on the forget set, with descent on the retain set in the same step.

    Formula: each step descends :math:`\beta\, \frac{1}{|B|}\sum_{x \in B} \ell(w, x) - (1 - \beta)\,
    \frac{1}{|B_F|}\sum_{x \in B_F} \ell(w, x)` with a batch :math:`B` of the retain set and a batch :math:`B_F` of the
    forget set, which is repeated as often as necessary.

    Args:
        recipe: hyperparameters of training; an epoch is a pass over the retain set.
        beta: weight of the retain set, in (0, 1).

    Source: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023 (NegGrad+).

    Departs: nothing. The two batches have separate forward passes, which matters for BatchNorm.
    """

    beta: float = 0.95

    EPOCHS: ClassVar[int] = 5
    SEARCH: ClassVar = {"learning_rate": (1e-4, 1e-1)}

    def __post_init__(self) -> None:
        if not 0 < self.beta < 1:
            raise InputError(f"`beta` must be in (0, 1); got {self.beta}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        retain = BatchStream(split.retain, self.recipe, seed)
        forget = BatchStream(split.forget, self.recipe, seed, "-forget")
        objective = replace(
            mean_loss(retain),
            terms=lambda step: [Term(retain, step, self.beta), Term(forget, step, self.beta - 1)],
        )
        return Training(model, split.train, self.recipe, seed=seed, ranks=ranks, objective=objective)
