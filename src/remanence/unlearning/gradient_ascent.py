"""Gradient ascent on the forget set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from remanence.data import Split
from remanence.training import ALONE, Ranks, Stream, Training, over
from remanence.unlearning.contract import Method


@dataclass(frozen=True)
class GradientAscent(Method):
    r"""Unlearn by climbing where training went down.

    Formula: :math:`w \leftarrow w + \eta\, \nabla \frac{1}{|B|}\sum_{x \in B} \ell(w, x)` with batches :math:`B` of the
    forget set only. The loss has no upper bound, so sooner or later the model is wrecked: a reference point, for a few
    steps at a small learning rate.

    Args:
        recipe: learning rate and length, both small; an epoch is a pass over the forget set.

    Source: Thudi et al., "Unrolling SGD", EuroS&P 2022; Golatkar et al., CVPR 2020, as a baseline.

    Departs: weight decay keeps its usual sign; the retain set is never read.
    """

    EPOCHS: ClassVar[int] = 5
    LEARNING_RATE: ClassVar[float] = 1e-3
    SEARCH: ClassVar = {"learning_rate": (1e-6, 1e-2)}

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """Ascent on the forget set."""
        objective = over(Stream(split.forget, self.recipe, seed), weight=-1.0)
        return Training(model, split.forget, self.recipe, seed=seed, ranks=ranks, objective=objective)
