"""MSG: draw anew the weights whose gradients agree least with forgetting, then train on the retain set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.tasks.randomness import generator
from remanence.training import SINGLE_PROCESS, BatchStream, Parameters, Ranks, Recipe, Training, mean_loss
from remanence.unlearning.method import Method
from remanence.unlearning.set_gradient import largest, set_gradient

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_SLOW = 0.1
"""The factor of the gradients of the weights that were kept."""


@dataclass(frozen=True)
class Msg(Method):
    r"""Unlearn by masked small gradients (MSG): new random values for some weights, then training on the retain set.

    Formula: with :math:`g = \nabla L_R - \nabla L_F`, the gradients of the mean losses of the forget set and of as many
    random examples of the retain set, the `fraction` of each convolution's weights with the smallest :math:`|g|` gets
    new values from :math:`N(0, 2 / \text{fan-out})`. Then plain training on :math:`D \setminus D_F`, in which the
    gradients of the other weights of convolutions are multiplied by 0.1.

    Args:
        recipe: hyperparameters of training; by default 5 epochs with a learning rate that rises linearly to 0.001 over
            the first half and falls linearly to 0 over the second.
        fraction: fraction of the weights of each convolution that is drawn anew, in (0, 1].

    Source: second place of the NeurIPS 2023 unlearning challenge; Cadet et al., "Deep Unlearn: Benchmarking Machine
    Unlearning", 2024 (arXiv 2410.01276), and its code (github.com/xcadet/deepunlearn, `kgltop2.py`).

    Departs: the gradients are taken in evaluation mode, and as means over examples rather than sums of the means of
    batches. The learning rate changes with every step rather than every epoch. In a model without convolutions, the
    weights of linear layers take their place.
    """

    fraction: float = 0.3

    EPOCHS: ClassVar[int] = 5
    LEARNING_RATE: ClassVar = 1e-3
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (1e-4, 0.5),
        "fraction": (0.1, 0.9),
    }

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InputError(f"`fraction` must be in (0, 1]; got {self.fraction}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        drawn = self._smallest(model, split, seed)

        @torch.no_grad()
        def draw(parameters: Parameters) -> None:
            for name, mask in drawn.items():
                new = torch.empty(mask.shape)
                nn.init.kaiming_normal_(new, mode="fan_out", generator=generator(seed, "reset", name))
                parameters[name].copy_(torch.where(mask, new.to(mask.device), parameters[name]))

        @torch.no_grad()
        def slow_others(parameters: Parameters, step: int) -> None:
            for name, mask in drawn.items():
                gradient = parameters[name].grad
                if gradient is not None:
                    gradient.mul_(torch.where(mask, 1.0, _SLOW))

        plain = mean_loss(BatchStream(split.retain, self.recipe, seed))
        objective = replace(plain, before_first_step=draw, change_gradients=slow_others)
        return Training(model, split.train, self.recipe, seed=seed, ranks=ranks, objective=objective)

    def _smallest(self, model: nn.Module, split: Split, seed: int) -> dict[str, Tensor]:
        """Masks of the weights to draw anew, by name."""
        names = _weights(model)
        forget = set_gradient(model, split.forget)
        retain = set_gradient(model, _some(split.retain, len(split.forget), seed))
        masks = {}
        for name in names:
            difference = (retain[name] - forget[name]).abs()
            mask = torch.zeros(difference.numel(), dtype=torch.bool, device=difference.device)
            mask[largest(-difference.flatten(), self.fraction)] = True
            masks[name] = mask.view_as(difference)
        return masks

    @classmethod
    def default_recipe(cls, training: Recipe) -> Recipe:
        """The recipe of the source, with a learning rate that rises and falls."""
        return replace(super().default_recipe(training), warmup=0.5, schedule="linear")


def _weights(model: nn.Module) -> list[str]:
    """Names of the weights of convolutions, or of linear layers if there are none."""
    for kinds in (_CONVOLUTIONS, (nn.Linear,)):
        names = [
            f"{name}.weight" if name else "weight"
            for name, module in model.named_modules()
            if isinstance(module, kinds) and module.weight.requires_grad
        ]
        if names:
            return names
    raise InputError("Expected a model with trainable convolutions or linear layers for msg; it has neither.")


def _some(examples: Examples, size: int, seed: int) -> Examples:
    """Random examples, at most `size`."""
    order = torch.randperm(len(examples), generator=generator(seed, "retained sample"))
    return examples.take(examples.ids[order[:size].numpy()])
