"""Examples that stay in their data set and are read batch by batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import tee
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Subset

from remanence.batches import Batch, tensors_of
from remanence.data.examples import Examples
from remanence.data.identified_dataset import IdentifiedDataset
from remanence.errors import DataError
from remanence.losses import CLASSIFICATION, Readout

_HASHED_ROWS = 64


class StreamedExamples(Examples):
    """Some rows of a data set with ids; nothing but ids, and labels where they are asked for, is kept in memory.

    Args:
        dataset: the whole data set.
        rows: positions of the examples in it; all by default.
        readout: how a model's outputs are compared with the targets.
        labels: other labels than those of the data set.
        workers: processes that read batches ahead when all examples are passed through a model.
    """

    def __init__(
        self,
        dataset: IdentifiedDataset,
        rows: NDArray[np.int64] | None = None,
        readout: Readout = CLASSIFICATION,
        *,
        labels: Tensor | None = None,
        workers: int = 0,
    ) -> None:
        own = np.arange(len(dataset)) if rows is None else rows
        values = {
            "dataset": dataset,
            "rows": own,
            "ids": dataset.ids[own],
            "readout": readout,
            "given_labels": labels,
            "workers": workers,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    dataset: IdentifiedDataset
    rows: NDArray[np.int64]
    given_labels: Tensor | None
    workers: int

    def __repr__(self) -> str:
        return f"StreamedExamples({len(self)} of {len(self.dataset)} rows of a {type(self.dataset.dataset).__name__})"

    @property
    def inputs(self) -> Tensor:
        """Refused: the whole data set would have to be in memory."""
        self._refuse("all inputs in memory")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the first tensor of an input; of the first example where they differ."""
        inputs, _ = self.batch(torch.zeros(1, dtype=torch.int64))
        return tuple(tensors_of(inputs)[0].shape[1:])

    def input_at(self, position: int) -> Tensor:
        """One input by position, if it is a single tensor."""
        inputs, _ = self.batch(torch.tensor([position]))
        if not isinstance(inputs, Tensor):
            self._refuse("inputs that are single tensors")
        return inputs[0]

    @cached_property
    def labels(self) -> Tensor:
        """The targets of all examples."""
        if self.given_labels is not None:
            return self.given_labels
        targets = self.dataset.targets
        if targets is None:
            self._refuse("targets that are single tensors of one shape")
        return targets[torch.from_numpy(self.rows)]

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; empty if the targets are not whole numbers, one per example."""
        names = self.dataset.class_names
        if names:
            return names
        targets = self.dataset.targets if self.has_classes else None
        return () if targets is None else tuple(str(number) for number in range(int(targets.max()) + 1))

    @property
    def has_classes(self) -> bool:
        """Whether the target of an example is one class number; read from the first example."""
        _, targets = self.batch(torch.zeros(1, dtype=torch.int64))
        return isinstance(targets, Tensor) and targets.dim() == 1 and not targets.is_floating_point()

    def batch(self, rows: Tensor) -> tuple[Batch, Batch]:
        """Inputs and targets of the examples at these positions."""
        inputs, targets = self.dataset.batch(self.rows[rows.numpy()])
        return inputs, targets if self.given_labels is None else self.given_labels[rows]

    def batches(self, size: int, rows: Tensor | None = None) -> Iterator[tuple[Batch, Batch]]:
        """Inputs and targets of all examples in order, at most `size` at a time, read ahead by `workers` processes."""
        self.dataset.check()
        chosen = torch.arange(len(self)) if rows is None else rows
        return self.read_ahead(torch.split(chosen, size))

    def read_ahead(self, batches: Iterable[Tensor]) -> Iterator[tuple[Batch, Batch]]:
        """Inputs and targets of one batch of positions after the other, read ahead by `workers` processes."""
        asked, drawn = tee(batches)
        read = self.dataset.read_ahead((self.rows[rows.numpy()] for rows in drawn), self.workers)
        for rows, (inputs, targets) in zip(asked, read, strict=False):
            yield inputs, targets if self.given_labels is None else self.given_labels[rows]

    def with_inputs(self, inputs: Tensor) -> NoReturn:
        """Refused: the whole data set would have to be in memory."""
        self._refuse("all inputs in memory")

    def with_labels(self, labels: Tensor) -> StreamedExamples:
        """The same examples with other labels."""
        return StreamedExamples(self.dataset, self.rows, self.readout, labels=labels, workers=self.workers)

    def with_readout(self, readout: Readout) -> StreamedExamples:
        """The same examples, whose outputs are read in another way."""
        return StreamedExamples(
            self.dataset, self.rows, readout, labels=self.given_labels, workers=self.workers
        )

    def as_dataset(self) -> Dataset[Any]:
        """The items of the data set that belong to these examples."""
        return Subset(self.dataset.dataset, self.rows.tolist())

    def digest(self) -> str:
        """SHA-256 of all ids, and of the content of some rows, evenly spread: not every row is read."""
        content = hashlib.sha256("\n".join(map(str, self.ids.tolist())).encode())
        chosen = np.unique(np.linspace(0, len(self) - 1, min(len(self), _HASHED_ROWS)).astype(np.int64))
        for row in self.rows[chosen].tolist():
            content.update("".join(self.dataset.fingerprint(row)).encode())
        if self.given_labels is not None:
            content.update(repr(self.given_labels.tolist()).encode())
        return content.hexdigest()

    def _rows(self, rows: NDArray[np.int64]) -> StreamedExamples:
        labels = None if self.given_labels is None else self.given_labels[torch.from_numpy(rows)]
        return StreamedExamples(
            self.dataset, self.rows[rows], self.readout, labels=labels, workers=self.workers
        )

    def _refuse(self, what: str) -> NoReturn:
        raise DataError(
            f"This needs {what}; these examples are read from a {type(self.dataset.dataset).__name__} batch by batch."
        )
