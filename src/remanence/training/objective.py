"""What each step of the one loop descends: whose batches, which loss, with which weight.

Training is one stream of examples under cross-entropy; an unlearning method is another objective for the same loop, and
so has its checks, its noise, its processes and its resumption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remanence.data import Examples, augment
from remanence.tasks.randomness import generator
from remanence.tasks.recipe import Recipe

Parameters = Mapping[str, nn.Parameter]
BatchLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(outputs, inputs, labels) -> one loss an example."""


def cross_entropy(outputs: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """The loss that models are trained with."""
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


class Stream:
    """The batches of one set of examples, each drawn by its number alone.

    Args:
        examples: whom they are drawn from.
        recipe: batch size, sampling and augmentation.
        seed: of the run.
        name: sets the draws of a run's several streams apart.
    """

    def __init__(self, examples: Examples, recipe: Recipe, seed: int, name: str = "") -> None:
        self.examples, self.recipe, self.seed, self._name = examples, recipe, seed, name
        self.batches_per_pass = recipe.steps_per_epoch(len(examples))
        self._order: tuple[int, Tensor] | None = None

    def rows(self, number: int) -> Tensor:
        """Positions of this batch's examples, the same on every process."""
        n, size = len(self.examples), self.recipe.batch_size
        if self.recipe.sampling == "poisson":
            drawn = torch.rand(n, generator=generator(self.seed, f"batch{self._name}", number))
            return (drawn < min(1.0, size / n)).nonzero().flatten()
        turn, place = divmod(number, self.batches_per_pass)
        if self._order is None or self._order[0] != turn:
            self._order = turn, torch.randperm(n, generator=generator(self.seed, f"epoch{self._name}", turn))
        return self._order[1][place * size : (place + 1) * size]

    def denominator(self, rows: Tensor) -> int:
        """What the batch's sum is divided by."""
        return self.recipe.batch_size if self.recipe.sampling == "poisson" else len(rows)

    def batch(self, rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Inputs (augmented, if the recipe says so) and labels of some of a batch's rows."""
        inputs = self.examples.inputs[rows]
        if self.recipe.augment:
            turn = number // self.batches_per_pass
            inputs = augment(inputs, self.examples.ids[rows.numpy()], epoch=turn, seed=self.seed)
        return inputs, self.examples.labels[rows]


@dataclass(frozen=True)
class Term:
    """`weight` times the mean loss over one batch of a stream."""

    stream: Stream
    number: int
    weight: float = 1.0
    loss: BatchLoss = cross_entropy


def _nothing(parameters: Parameters, step: int) -> None:
    """No change."""


@dataclass(frozen=True)
class Objective:
    """What a run descends.

    Args:
        terms: of a step, counted from 0; each gets a forward pass of its own.
        steps_per_epoch: steps that the recipe's schedule counts as an epoch.
        total_steps: of the whole run.
        penalize: adds to the gradients what depends on the weights alone; once a step, on however many processes.
        settle: changes the weights after each step.
    """

    terms: Callable[[int], Sequence[Term]]
    steps_per_epoch: int
    total_steps: int
    penalize: Callable[[Parameters, int], None] = _nothing
    settle: Callable[[Parameters, int], None] = _nothing


def over(stream: Stream, *, weight: float = 1.0, loss: BatchLoss = cross_entropy) -> Objective:
    """The mean loss over one stream, for as many epochs as its recipe says."""
    per_epoch = stream.batches_per_pass
    return Objective(
        lambda step: [Term(stream, step, weight, loss)], per_epoch, stream.recipe.epochs * per_epoch
    )
