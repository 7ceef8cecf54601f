"""Descent on the retain set and ascent on the forget set at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import ALONE, Ranks, Stream, Term, Training, over
from remanence.unlearning.contract import Method


@dataclass(frozen=True)
class NegGradPlus(Method):
    r"""Unlearn by climbing on the forget set while holding on to the retain set.

    Formula: each step descends :math:`\beta\, \frac{1}{|B|}\sum_{x \in B} \ell(w, x) - (1 - \beta)\,
    \frac{1}{|B_F|}\sum_{x \in B_F} \ell(w, x)` with a batch :math:`B` of the retain set and one, :math:`B_F`, of the
    forget set, which is passed through as often as it takes.

    Args:
        recipe: an epoch is a pass over the retain set.
        beta: the retain set's weight, in (0, 1).

    Source: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023 (their NegGrad+).

    Departs: nothing. The two batches go through the model separately, which matters for BatchNorm.
    """

    beta: float = 0.95

    EPOCHS: ClassVar[int] = 5
    SEARCH: ClassVar = {"learning_rate": (1e-4, 1e-1)}

    def __post_init__(self) -> None:
        if not 0 < self.beta < 1:
            raise InputError(f"`beta` must be in (0, 1); got {self.beta}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """Two terms a step."""
        retain = Stream(split.retain, self.recipe, seed)
        forget = Stream(split.forget, self.recipe, seed, "-forget")
        objective = replace(
            over(retain),
            terms=lambda step: [Term(retain, step, self.beta), Term(forget, step, self.beta - 1)],
        )
        return Training(model, split.train, self.recipe, seed=seed, ranks=ranks, objective=objective)
