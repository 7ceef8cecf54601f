"""Fine-tuning on the retain set with an L1 penalty that fades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import ALONE, Objective, Parameters, Ranks, Stream, Training, over
from remanence.unlearning.contract import Method


@dataclass(frozen=True)
class L1Sparse(Method):
    r"""Unlearn by training on while the weights are drawn to zero.

    Formula: :math:`\frac{1}{|B|}\sum_{x \in B} \ell(w, x) + \alpha\,(1 - e/E)\,\lVert w \rVert_1` in epoch
    :math:`e = 0, …, E - 1`, with batches :math:`B` of the retain set only.

    Args:
        recipe: the learning rate, and `epochs`, over which the penalty fades linearly.
        coefficient: α; useful values are about 1e-4 to 1e-3.

    Source: Jia, Liu et al., "Model Sparsity Can Simplify Machine Unlearning", NeurIPS 2023.

    The norm is over all parameters, those of norm layers and biases too, as in the authors' code. Its gradient is
    α sign(w), 0 at 0; weights come near zero and are not set to it.
    """

    coefficient: float = 5e-4

    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (1e-4, 0.5),
        "coefficient": (1e-5, 1e-2),
    }

    def __post_init__(self) -> None:
        if not self.coefficient >= 0:
            raise InputError(f"`coefficient` must not be negative; got {self.coefficient}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """Training on the retain set with the penalty's gradient added."""
        plain = over(Stream(split.retain, self.recipe, seed))
        objective = replace(plain, penalize=lambda weights, step: self._add(weights, step, plain))
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks, objective=objective)

    @torch.no_grad()
    def _add(self, parameters: Parameters, step: int, plain: Objective) -> None:
        epoch = step // plain.steps_per_epoch
        coefficient = self.coefficient * (1 - epoch / self.recipe.epochs)
        for parameter in parameters.values():
            if parameter.grad is not None:
                parameter.grad.add_(parameter.sign(), alpha=coefficient)
