"""Gradient ascent on the forget set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from remanence.data import Split
from remanence.training import SINGLE_PROCESS, BatchStream, Ranks, Training, mean_loss
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class GradientAscent(Method):
    r"""Unlearn by gradient ascent on the loss of the forget set.

    Formula: :math:`w \leftarrow w + \eta\, \nabla \frac{1}{|B|}\sum_{x \in B} \ell(w, x)` with batches :math:`B` of the
    forget set only. The loss has no upper bound, so after enough steps the model is useless: a baseline for a few steps
    at a small learning rate.

    Args:
        recipe: hyperparameters of training; an epoch is a pass over the forget set.

    Source: Thudi et al., "Unrolling SGD", EuroS&P 2022; Golatkar et al., CVPR 2020, as a baseline.

    Departs: weight decay keeps its usual sign; the retain set is not used.
    """

    EPOCHS: ClassVar[int] = 5
    LEARNING_RATE: ClassVar[float] = 1e-3
    SEARCH: ClassVar = {"learning_rate": (1e-6, 1e-2)}

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        objective = mean_loss(BatchStream(split.forget, self.recipe, seed), weight=-1.0)
        return Training(model, split.forget, self.recipe, seed=seed, ranks=ranks, objective=objective)
