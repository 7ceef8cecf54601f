"""Random labels, with only the weights that matter for the forget set allowed to move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.gradients.evaluation_mode import evaluating
from remanence.training import ALONE, Parameters, Ranks, Stream, Training, over
from remanence.unlearning.contract import Method
from remanence.unlearning.random_label import relabelled

_BATCH = 256


@dataclass(frozen=True)
class SalUn(Method):
    r"""Unlearn with random labels, moving salient weights only.

    Formula: as `RandomLabel`, with :math:`w \leftarrow m \odot w_{new} + (1 - m) \odot w_{original}` after every step;
    :math:`m` marks the `fraction` of weights with the largest :math:`|\nabla \sum_{x \in D_F} \ell(w_{original}, x)|`.

    Args:
        recipe: an epoch is a pass over all training data.
        fraction: the share of weights that may move, in (0, 1].

    Source: Fan, Liu et al., "SalUn: Empowering Machine Unlearning via Gradient-based Weight Saliency in Both Image
    Classification and Generation", ICLR 2024.

    Departs: the other weights stay put to the bit, where masking the gradient alone would let weight decay move them.
    The saliency is taken in evaluation mode, so it leaves BatchNorm's statistics alone.
    """

    fraction: float = 0.5

    EPOCHS: ClassVar[int] = 10

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InputError(f"`fraction` must be in (0, 1]; got {self.fraction}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """Training on everything, the forget set relabelled, most of the weights held."""
        examples = relabelled(split, seed)
        original = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        salient = salient_weights(model, split.forget, self.fraction)

        @torch.no_grad()
        def hold(parameters: Parameters, step: int) -> None:
            for name, parameter in parameters.items():
                parameter.copy_(torch.where(salient[name], parameter, original[name]))

        objective = replace(over(Stream(examples, self.recipe, seed)), settle=hold)
        return Training(model, examples, self.recipe, seed=seed, ranks=ranks, objective=objective)


def salient_weights(model: nn.Module, forget: Examples, fraction: float) -> Mapping[str, Tensor]:
    """Masks of the weights whose gradient on the forget set is largest; of equal ones the first.

    Every process computes all of it: shares added up in another order could round a weight to the other side.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    total = [torch.zeros_like(parameter) for parameter in parameters.values()]
    with evaluating(model):
        for inputs, labels in zip(
            torch.split(forget.inputs, _BATCH), torch.split(forget.labels, _BATCH), strict=True
        ):
            device = total[0].device
            outputs = model(inputs.to(device))
            loss = nn.functional.cross_entropy(outputs, labels.to(device), reduction="sum")
            found = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
            torch._foreach_add_(total, found)
    flat = torch.cat([each.flatten() for each in total]).abs()
    chosen = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
    chosen[flat.sort(descending=True, stable=True).indices[: max(1, round(fraction * len(flat)))]] = True
    sizes = [parameter.numel() for parameter in parameters.values()]
    return {
        name: mask.view_as(parameters[name])
        for name, mask in zip(parameters, torch.split(chosen, sizes), strict=True)
    }
