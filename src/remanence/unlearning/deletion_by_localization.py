"""DEL: draw anew the channels that matter most for the forget set, and train these alone on the retain set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import SINGLE_PROCESS, BatchStream, Parameters, Ranks, Recipe, Training, mean_loss
from remanence.unlearning.method import Method
from remanence.unlearning.new_weights import MakeModel, new_weights
from remanence.unlearning.set_gradient import largest_overall, set_gradient

_LARGEST_WEIGHTS = 0.1
"""A channel is scored by this share of its weights, those with the largest values."""


@dataclass(frozen=True)
class Del(Method):
    r"""Unlearn by deletion by example localization (DEL).

    Formula: the score of an output channel of a weight is the mean of the largest tenth of :math:`|\theta_j\,
    \partial L_F / \partial \theta_j|` over its entries, that of a vector (a bias, a normalization) the largest one. The
    `fraction` of all parameters in the channels and vectors with the highest scores gets new random values. Then
    training on :math:`D \setminus D_F`, in which only these parameters and those of the last layer change.

    Args:
        recipe: hyperparameters of training; by default 30 epochs at learning rate 0.015 with a cosine schedule and no
            weight decay.
        fraction: fraction of all parameters that is drawn anew, in (0, 1].
        make_model: builds a new model, whose weights are taken; by default each layer draws its own.

    Source: Torkzadehmahani et al., "Improved Localized Machine Unlearning Through the Lens of Memorization", TMLR 2025
    (arXiv 2412.02432), and its code (github.com/reihaneh-torkzadehmahani/DEL-Unlearning).

    Departs: the code takes as many entries per channel as a tenth of the number of channels (all for its ViT); here it
    is a tenth of the channel's entries everywhere, rounded up. The new values are always new draws, also for a model
    whose initial weights are known. Parameters of modules without `reset_parameters` stay as they are. The learning
    rate falls to 0 rather than to a hundredth.
    """

    fraction: float = 0.3
    make_model: MakeModel | None = None

    EPOCHS: ClassVar[int] = 30
    LEARNING_RATE: ClassVar = 0.015
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (1e-3, 0.5),
        "fraction": (0.1, 0.9),
    }

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InputError(f"`fraction` must be in (0, 1]; got {self.fraction}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        original = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        gradient = set_gradient(model, split.forget)
        new = new_weights(model, seed, self.make_model)
        if not new:
            raise InputError("Expected layers with `reset_parameters` for del, or `make_model`; got neither.")
        scores = {name: _scores(original[name] * gradient[name]) for name in new}
        critical = largest_overall(scores, self.fraction)
        nothing = {name: torch.zeros_like(values, dtype=torch.bool) for name, values in original.items()}
        trained = (
            nothing | critical | {name: ~nothing[name] for name in _last_layer(model) if name in nothing}
        )

        @torch.no_grad()
        def reset(parameters: Parameters) -> None:
            for name, mask in critical.items():
                parameters[name].copy_(torch.where(mask, new[name], parameters[name]))

        @torch.no_grad()
        def restore_others(parameters: Parameters, step: int) -> None:
            for name, parameter in parameters.items():
                parameter.copy_(torch.where(trained[name], parameter, original[name]))

        plain = mean_loss(BatchStream(split.retain, self.recipe, seed))
        objective = replace(plain, before_first_step=reset, after_step=restore_others)
        return Training(model, split.train, self.recipe, seed=seed, ranks=ranks, objective=objective)

    @classmethod
    def default_recipe(cls, training: Recipe) -> Recipe:
        """The recipe of the source: a cosine schedule and no weight decay."""
        return replace(super().default_recipe(training), schedule="cosine", weight_decay=0.0)


def _scores(products: Tensor) -> Tensor:
    """The score of every entry of a parameter, which is that of its channel, or of the whole vector."""
    sizes = products.abs()
    if sizes.dim() < 2:
        return sizes.max().expand_as(sizes)
    channels = sizes.flatten(1)
    count = -(-channels.shape[1] // round(1 / _LARGEST_WEIGHTS))
    scores = channels.topk(count, dim=1).values.mean(dim=1)
    return scores.view(-1, *[1] * (sizes.dim() - 1)).expand_as(sizes)


def _last_layer(model: nn.Module) -> list[str]:
    """Names of the parameters of the last linear layer that the model registers."""
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    prefix = f"{layers[-1]}." if layers and layers[-1] else ""
    return [name for name, _ in model.named_parameters() if layers and name.startswith(prefix)]
