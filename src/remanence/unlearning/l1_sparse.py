"""Fine-tuning on the retain set with a decreasing L1 penalty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import SINGLE_PROCESS, BatchStream, Parameters, Ranks, Training, mean_loss
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class L1Sparse(Method):
    r"""Unlearn by fine-tuning with an L1 penalty on the weights.

    Formula: :math:`\frac{1}{|B|}\sum_{x \in B} \ell(w, x) + \alpha\,(1 - e/E)\,\lVert w \rVert_1` in epoch
    :math:`e = 0, …, E - 1`, with batches :math:`B` of the retain set only.

    Args:
        recipe: hyperparameters of training; the penalty decreases linearly over its epochs.
        coefficient: weight α of the penalty; useful values are about 1e-4 to 1e-3.

    Source: Jia, Liu et al., "Model Sparsity Can Simplify Machine Unlearning", NeurIPS 2023.

    The norm is over all parameters, including normalization layers and biases, as in the authors' code. Its gradient is
    α sign(w), and 0 at 0; weights get close to zero and are not pruned.
    """

    coefficient: float = 5e-4

    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (1e-4, 0.5),
        "coefficient": (1e-5, 1e-2),
    }

    def __post_init__(self) -> None:
        if not self.coefficient >= 0:
            raise InputError(f"`coefficient` must not be negative; got {self.coefficient}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        plain = mean_loss(BatchStream(split.retain, self.recipe, seed))
        objective = replace(
            plain,
            change_gradients=lambda weights, step: self._add_penalty(weights, step, plain.steps_per_epoch),
        )
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks, objective=objective)

    @torch.no_grad()
    def _add_penalty(self, parameters: Parameters, step: int, steps_per_epoch: int) -> None:
        coefficient = self.coefficient * (1 - step // steps_per_epoch / self.recipe.epochs)
        for parameter in parameters.values():
            if parameter.grad is not None:
                parameter.grad.add_(parameter.sign(), alpha=coefficient)
