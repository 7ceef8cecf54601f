"""Shrink all weights towards zero, add new random ones, then train on the retain set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import SINGLE_PROCESS, BatchStream, Parameters, Ranks, Training, mean_loss
from remanence.unlearning.method import Method
from remanence.unlearning.new_weights import MakeModel, new_weights


@dataclass(frozen=True)
class ShrinkPerturb(Method):
    r"""Unlearn by shrinking and perturbing the weights, then training on the retain set.

    Formula: :math:`w \leftarrow \lambda\, w + \rho\, w_{new}` once, with :math:`w_{new}` the random weights of a new
    model; then plain training on :math:`D \setminus D_F`. It does not read the forget set.

    Args:
        recipe: hyperparameters of training; the learning rate is that of training.
        shrink: the factor λ of the old weights, in [0, 1).
        perturb: the factor ρ of the new weights.
        make_model: builds a new model, whose weights are taken; by default each layer draws its own.

    Source: Ash and Adams, "On Warm-Starting Neural Network Training", NeurIPS 2020, where it mends training on data
    that arrive in batches.

    Departs: the noise is that of the layers' initialization, as in the authors' code; parameters of modules that cannot
    draw new ones (no `reset_parameters`) stay as they are. Accuracy drops at first: train on until it is back.
    """

    shrink: float = 0.4
    perturb: float = 0.6
    make_model: MakeModel | None = None

    EPOCHS: ClassVar[int] = 10
    LEARNING_RATE: ClassVar = None
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {"learning_rate": (1e-3, 0.5), "shrink": (0.1, 0.9)}

    def __post_init__(self) -> None:
        if not 0 <= self.shrink < 1:
            raise InputError(f"`shrink` must be in [0, 1); got {self.shrink}.")
        if not self.perturb >= 0:
            raise InputError(f"`perturb` must not be negative; got {self.perturb}.")

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        change = shrink_and_perturb(model, seed, self.shrink, self.perturb, self.make_model)
        plain = mean_loss(BatchStream(split.retain, self.recipe, seed))
        objective = replace(plain, before_first_step=change)
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks, objective=objective)


def shrink_and_perturb(
    model: nn.Module,
    seed: int,
    shrink: float = ShrinkPerturb.shrink,
    perturb: float = ShrinkPerturb.perturb,
    make_model: MakeModel | None = None,
) -> Callable[[Parameters], None]:
    """A change of the weights: all are multiplied by `shrink`, and `perturb` times new random ones are added."""
    new = new_weights(model, seed, make_model)

    @torch.no_grad()
    def change(parameters: Parameters) -> None:
        for name, values in new.items():
            parameters[name].mul_(shrink).add_(values, alpha=perturb)

    return change
