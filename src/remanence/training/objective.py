"""Objectives of the training loop: a sum of terms, each the weighted mean loss over a batch.

Training minimizes the loss of one stream of batches, which the examples bring with them. An unlearning method is
another objective for the same loop, so that noise, several processes and resuming work for it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from remanence.batches import Batch, size_of
from remanence.data import Examples, StreamedExamples, augment
from remanence.errors import InputError
from remanence.tasks.randomness import generator
from remanence.tasks.recipe import Recipe
from remanence.training.ranks import Ranks

Parameters = Mapping[str, nn.Parameter]
BatchLoss = Callable[[Any, Batch, Batch], Tensor]
"""(outputs, inputs, labels) -> one loss per example."""


def loss_of(examples: Examples) -> BatchLoss:
    """The loss of these examples, as a term wants it."""
    return lambda outputs, inputs, labels: examples.readout.losses(outputs, labels, size_of(labels))


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
        self._ahead: Iterator[tuple[Batch, Batch]] | None = None
        self._reading = -1

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

    def parts(self, index: int, ranks: Ranks) -> list[Tensor]:
        """The rows of a batch that this process works on, in the parts that fit in memory."""
        shares = torch.tensor_split(ranks.share(self.rows(index)), self.recipe.accumulate)
        return [part for part in shares if len(part)]

    def read(self, index: int, ranks: Ranks) -> Iterator[tuple[Tensor, Batch, Batch]]:
        """Rows, inputs and labels of each part of a batch; a data set with workers is read ahead."""
        for part in self.parts(index, ranks):
            inputs, labels = self._read(part, index, ranks)
            yield part, self._augmented(inputs, part, index), labels

    def _read(self, part: Tensor, index: int, ranks: Ranks) -> tuple[Batch, Batch]:
        examples = self.examples
        if not (isinstance(examples, StreamedExamples) and examples.workers):
            return examples.batch(part)
        if self._ahead is None or self._reading not in (index, index - 1):
            later = (rows for i in count(index) for rows in self.parts(i, ranks))
            self._ahead = examples.read_ahead(later)
        self._reading = index
        return next(self._ahead)

    def _augmented(self, inputs: Batch, rows: Tensor, index: int) -> Batch:
        if not self.recipe.augment:
            return inputs
        if not isinstance(inputs, Tensor):
            raise InputError("`augment` needs inputs that are pictures; augment others in your own `fit`.")
        epoch = index // self.batches_per_epoch
        return augment(inputs, self.examples.ids[rows.numpy()], epoch=epoch, seed=self.seed)


@dataclass(frozen=True)
class Term:
    """The mean loss over one batch, times a weight.

    Args:
        stream: the stream of batches.
        index: index of the batch in the stream.
        weight: factor of the loss; negative for gradient ascent.
        loss: the loss of each example; that of the stream's examples when None.
        targets: one row per example of the stream, which the loss gets instead of the labels.
    """

    stream: BatchStream
    index: int
    weight: float = 1.0
    loss: BatchLoss | None = None
    targets: Tensor | None = None

    def read(self, ranks: Ranks) -> Iterator[tuple[Tensor, Batch, Batch]]:
        """Rows, inputs and labels or targets of each part of the batch."""
        for part, inputs, labels in self.stream.read(self.index, ranks):
            yield part, inputs, labels if self.targets is None else self.targets[part]

    def losses(self, outputs: Any, inputs: Batch, labels: Batch) -> Tensor:
        """One loss per example."""
        return (self.loss or loss_of(self.stream.examples))(outputs, inputs, labels)


def _no_change(parameters: Parameters, step: int) -> None:
    pass


def _no_start(parameters: Parameters) -> None:
    pass


@dataclass(frozen=True)
class Objective:
    """The loss that a run minimizes.

    Args:
        terms: gives the terms of a step, counted from 0; each has its own forward pass.
        steps_per_epoch: steps per epoch of the learning rate schedule.
        total_steps: steps of the whole run.
        before_first_step: changes the weights once, before the first step; a resumed run does not repeat it.
        change_gradients: changes the gradients of the weights, for example by a penalty; called once per step.
        after_step: changes the weights after each step.
    """

    terms: Callable[[int], Sequence[Term]]
    steps_per_epoch: int
    total_steps: int
    before_first_step: Callable[[Parameters], None] = _no_start
    change_gradients: Callable[[Parameters, int], None] = _no_change
    after_step: Callable[[Parameters, int], None] = _no_change


def mean_loss(stream: BatchStream, *, weight: float = 1.0, loss: BatchLoss | None = None) -> Objective:
    """The mean loss over the batches of one stream, for as many epochs as its recipe says."""
    per_epoch = stream.batches_per_epoch
    return Objective(
        lambda step: [Term(stream, step, weight, loss)], per_epoch, stream.recipe.epochs * per_epoch
    )
