"""Objectives of the training loop: a sum of terms, each the weighted mean loss over a batch.

Training minimizes the cross-entropy of one stream of batches. An unlearning method is another objective for the same
loop, so that noise, several processes and resuming work for it as well.
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
"""(outputs, inputs, labels) -> one loss per example."""


def cross_entropy(outputs: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


class BatchStream:
    """Random batches of a set of examples; a batch depends only on the seed and its index.

    Args:
        examples: the examples to draw from.
        recipe: batch size, sampling and augmentation.
        seed: random seed of the run.
        name: distinguishes the streams of a run, so that they draw different batches.
    """

    def __init__(self, examples: Examples, recipe: Recipe, seed: int, name: str = "") -> None:
        self.examples, self.recipe, self.seed, self._name = examples, recipe, seed, name
        self.batches_per_epoch = recipe.steps_per_epoch(len(examples))
        self._order: tuple[int, Tensor] | None = None

    def rows(self, index: int) -> Tensor:
        """Positions of the examples of a batch; the same on every process."""
        n, size = len(self.examples), self.recipe.batch_size
        if self.recipe.sampling == "poisson":
            drawn = torch.rand(n, generator=generator(self.seed, f"batch{self._name}", index))
            return (drawn < min(1.0, size / n)).nonzero().flatten()
        epoch, batch = divmod(index, self.batches_per_epoch)
        if self._order is None or self._order[0] != epoch:
            random = generator(self.seed, f"epoch{self._name}", epoch)
            self._order = epoch, torch.randperm(n, generator=random)
        return self._order[1][batch * size : (batch + 1) * size]

    def denominator(self, rows: Tensor) -> int:
        """The number that the sum of the losses is divided by."""
        return self.recipe.batch_size if self.recipe.sampling == "poisson" else len(rows)

    def batch(self, rows: Tensor, index: int) -> tuple[Tensor, Tensor]:
        """Inputs, augmented if the recipe says so, and labels of some rows of the batch with this index."""
        inputs = self.examples.inputs[rows]
        if self.recipe.augment:
            epoch = index // self.batches_per_epoch
            inputs = augment(inputs, self.examples.ids[rows.numpy()], epoch=epoch, seed=self.seed)
        return inputs, self.examples.labels[rows]


@dataclass(frozen=True)
class Term:
    """The mean loss over one batch, times a weight.

    Args:
        stream: the stream of batches.
        index: index of the batch in the stream.
        weight: factor of the loss; negative for gradient ascent.
        loss: the loss of each example.
    """

    stream: BatchStream
    index: int
    weight: float = 1.0
    loss: BatchLoss = cross_entropy


def _no_change(parameters: Parameters, step: int) -> None:
    pass


@dataclass(frozen=True)
class Objective:
    """The loss that a run minimizes.

    Args:
        terms: gives the terms of a step, counted from 0; each has its own forward pass.
        steps_per_epoch: steps per epoch of the learning rate schedule.
        total_steps: steps of the whole run.
        add_penalty: adds the gradient of a penalty on the weights to the gradients; called once per step.
        after_step: changes the weights after each step.
    """

    terms: Callable[[int], Sequence[Term]]
    steps_per_epoch: int
    total_steps: int
    add_penalty: Callable[[Parameters, int], None] = _no_change
    after_step: Callable[[Parameters, int], None] = _no_change


def mean_loss(stream: BatchStream, *, weight: float = 1.0, loss: BatchLoss = cross_entropy) -> Objective:
    """The mean loss over the batches of one stream, for as many epochs as its recipe says."""
    per_epoch = stream.batches_per_epoch
    return Objective(
        lambda step: [Term(stream, step, weight, loss)], per_epoch, stream.recipe.epochs * per_epoch
    )
