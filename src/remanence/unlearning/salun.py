"""SalUn: random labels, where only the weights that matter most for the forget set change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.training import SINGLE_PROCESS, BatchStream, Parameters, Ranks, Training, mean_loss
from remanence.unlearning.method import Method
from remanence.unlearning.random_label import relabel
from remanence.unlearning.set_gradient import largest_overall, set_gradient


@dataclass(frozen=True)
class SalUn(Method):
    r"""Unlearn with random labels, changing only the salient weights.

    Formula: as `RandomLabel`, with :math:`w \leftarrow m \odot w_{new} + (1 - m) \odot w_{original}` after every step;
    :math:`m` marks the `fraction` of weights with the largest :math:`|\nabla \sum_{x \in D_F} \ell(w_{original}, x)|`.

    Args:
        recipe: hyperparameters of training; an epoch is a pass over all training data.
        fraction: fraction of the weights that may change, in (0, 1].

    Source: Fan, Liu et al., "SalUn: Empowering Machine Unlearning via Gradient-based Weight Saliency in Both Image
    Classification and Generation", ICLR 2024.

    Departs: the other weights stay bitwise unchanged, while masking the gradient alone would let weight decay change
    them. The saliency is computed in evaluation mode, so it does not change the statistics of BatchNorm.
    """

    fraction: float = 0.5

    EPOCHS: ClassVar[int] = 10

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InputError(f"`fraction` must be in (0, 1]; got {self.fraction}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        examples = relabel(split, seed)
        original = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        salient = salient_weights(model, split.forget, self.fraction)

        @torch.no_grad()
        def restore_others(parameters: Parameters, step: int) -> None:
            for name, parameter in parameters.items():
                parameter.copy_(torch.where(salient[name], parameter, original[name]))

        objective = replace(mean_loss(BatchStream(examples, self.recipe, seed)), after_step=restore_others)
        return Training(model, examples, self.recipe, seed=seed, ranks=ranks, objective=objective)


def salient_weights(model: nn.Module, forget: Examples, fraction: float) -> Mapping[str, Tensor]:
    """Masks of the weights with the largest gradient on the forget set; ties go to the first weight."""
    sizes = {name: gradient.abs() for name, gradient in set_gradient(model, forget).items()}
    return largest_overall(sizes, fraction)
