"""Reset the output units that carry the forget set, then train on the retain set."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from remanence.batches import Batch, call, size_of
from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.losses import class_logits
from remanence.training import (
    SINGLE_PROCESS,
    BatchLoss,
    BatchStream,
    Parameters,
    Ranks,
    Term,
    Training,
    mean_loss,
)
from remanence.types import check_positive
from remanence.unlearning.distillation import output_distance
from remanence.unlearning.method import Method
from remanence.unlearning.new_weights import MakeModel, new_weights
from remanence.unlearning.out_of_fold import toward_folds
from remanence.unlearning.set_gradient import set_gradient
from remanence.unlearning.units import chosen_rows, layers_with_units


@dataclass(frozen=True)
class Reset(Method):
    r"""Unlearn by drawing anew the output units that carry the forget set, then training on the retain set.

    Formula: in each layer but the last, the score of an output unit is :math:`\sum_j |\theta_j\,
    \partial L_F / \partial \theta_j|` over its weights, with :math:`L_F` the mean loss of the forget set. The
    `fraction` of the units with the highest scores gets new random weights. Then plain training on :math:`D \setminus
    D_F`; with `distillation` κ > 0 it descends :math:`(1 - \kappa)\, \ell(w, x) + \kappa\, \mathrm{KL}(p(x;
    w_{original}) \,\Vert\, p(x; w))`. With `targets`, every step also draws a batch of the forget set towards the
    outputs of models that never saw it, as `OutOfFold` does.

    Units are the channels of convolutions, the outputs of linear layers (in a transformer, the units of its MLPs), and
    heads of attention with their rows of queries, keys and values.

    Args:
        recipe: hyperparameters of training; the learning rate is that of training.
        fraction: fraction of each layer's units that is drawn anew, in (0, 1].
        distillation: weight κ of the distance to the original model, in [0, 1).
        targets: a folder with the outputs of fold models, as for `OutOfFold`; none by default.
        weight: weight of the forget set if `targets` are given.
        make_model: builds a new model, whose weights are taken; by default each layer draws its own.

    Source: the score and the idea are those of DEL (see `Del`).

    Departs: from DEL, the units are chosen in each layer, not over all; the last layer and normalization layers keep
    their weights; afterwards all weights are trained, not only those that were reset, with new momentum. Where the
    outputs are not classes, the distance of the distillation is half the squared distance of the outputs. Accuracy
    drops at first: train on until it is back.
    """

    fraction: float = 0.3
    distillation: float = 0.0
    targets: str = ""
    weight: float = 1.0
    make_model: MakeModel | None = None

    EPOCHS: ClassVar[int] = 10
    LEARNING_RATE: ClassVar = None
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (1e-3, 0.5),
        "fraction": (0.1, 0.9),
    }

    def __post_init__(self) -> None:
        check_reset(self.fraction, self.distillation)
        check_positive("weight", self.weight)

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        reset = reset_units(model, split.forget, self.fraction, seed, self.make_model)
        loss = distilled(model, split.retain, self.distillation)
        retain = BatchStream(split.retain, self.recipe, seed)
        objective = replace(mean_loss(retain, loss=loss), before_first_step=reset)
        if self.targets:
            forget = toward_folds(split.forget, self.recipe, seed, self.targets, self.weight)
            objective = replace(objective, terms=lambda step: [Term(retain, step, loss=loss), forget(step)])
        return Training(model, split.train, self.recipe, seed=seed, ranks=ranks, objective=objective)


def check_reset(fraction: float, distillation: float) -> None:
    """Refuse values of the two hyperparameters of a reset that are out of range."""
    if not 0 < fraction <= 1:
        raise InputError(f"`fraction` must be in (0, 1]; got {fraction}.")
    if not 0 <= distillation < 1:
        raise InputError(f"`distillation` must be in [0, 1); got {distillation}.")


def reset_units(
    model: nn.Module, examples: Examples, fraction: float, seed: int, make_model: MakeModel | None = None
) -> Callable[[Parameters], None]:
    """A change of the weights: the units that carry these examples get new random weights.

    Args:
        model: the original model.
        examples: the examples to forget.
        fraction: fraction of each layer's units.
        seed: random seed of the new weights.
        make_model: builds a new model, whose weights are taken; by default each layer draws its own.
    """
    gradient = set_gradient(model, examples)
    chosen = chosen_rows(layers_with_units(model), dict(model.named_parameters()), gradient, fraction)
    new = new_weights(model, seed, make_model)

    @torch.no_grad()
    def reset(parameters: Parameters) -> None:
        for name, rows in chosen.items():
            index = rows.to(parameters[name].device)
            parameters[name][index] = new[name][index]

    return reset


def distilled(model: nn.Module, retain: Examples, distillation: float) -> BatchLoss | None:
    """The loss of retained examples with this weight on the distance to the original model; None for plain losses."""
    if not distillation:
        return None
    teacher = copy.deepcopy(model).eval().requires_grad_(False)

    def loss(outputs: Any, inputs: Batch, labels: Batch) -> Tensor:
        with torch.no_grad():
            target = call(teacher, inputs)
        classes = class_logits(outputs, labels) is not None
        distance = output_distance(outputs, target, classes=classes)
        own = retain.readout.losses(outputs, labels, size_of(labels))
        return (1 - distillation) * own + distillation * distance

    return loss
