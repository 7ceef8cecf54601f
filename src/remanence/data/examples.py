"""Examples in memory, named by stable ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from remanence.batches import Batch, size_of
from remanence.data.pixels import Pixels
from remanence.errors import DataError
from remanence.losses import CLASSIFICATION, Readout, binary_cross_entropy
from remanence.types import ForgetSet, Ids, as_ids, positions_of

Target = Literal["class", "number", "labels"]
_SHOWN_NUMBERS = 5
_TEXT_BATCH = 256


@dataclass(frozen=True, eq=False, init=False)
class Examples:
    """Inputs and labels with one stable id per example.

    Args:
        ids: one unique whole number or text per example.
        inputs: a tensor, or stored pixels, which become a tensor on first use.
        labels: class numbers [n], or floats [n, outputs]: numbers to predict, or 0 and 1 for each label.
        class_names: names of the classes, in the order of their numbers; empty if the labels are not classes.
        readout: how a model's outputs are compared with the labels.
    """

    ids: Ids
    labels: Tensor
    class_names: tuple[str, ...]
    readout: Readout
    _inputs: Tensor | Pixels

    def __init__(
        self,
        ids: ArrayLike,
        inputs: Tensor | Pixels,
        labels: Tensor,
        class_names: tuple[str, ...] = (),
        readout: Readout = CLASSIFICATION,
    ) -> None:
        values = {
            "ids": as_ids(ids),
            "labels": labels,
            "class_names": class_names,
            "readout": readout,
            "_inputs": inputs,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        sizes = {len(self.ids), len(inputs), len(labels)}
        if len(sizes) != 1:
            raise DataError(f"Ids, inputs and labels must be equally many; got {sorted(sizes)}.")
        if labels.is_floating_point() and not torch.isfinite(labels).all():
            row = int((~torch.isfinite(labels)).reshape(len(labels), -1).any(1).int().argmax())
            raise DataError(f"Labels must be finite; that of id {self.ids[row]} is not.")
        if class_names and len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(class_names):
            raise DataError(
                f"Labels must be in 0..{len(class_names) - 1}; got {int(labels.min())}..{int(labels.max())}."
            )

    @property
    def target(self) -> Target:
        """What a model predicts: one `class`, a `number`, or `labels`: yes or no for each of several labels."""
        if self.has_classes:
            return "class"
        return "labels" if self.readout.loss is binary_cross_entropy else "number"

    @property
    def has_classes(self) -> bool:
        """Whether the label of an example is one class number."""
        return self.labels.dim() == 1 and not self.labels.is_floating_point()

    @property
    def n_outputs(self) -> int:
        """Outputs of a model for these examples: one per class, number or label."""
        if self.target == "class":
            return len(self.class_names)
        return int(self.labels.shape[1]) if self.labels.dim() > 1 else 1

    @property
    def inputs(self) -> Tensor:
        """Images [n, channels, height, width], or features [n, features]."""
        inputs = self._inputs
        if isinstance(inputs, Pixels):
            inputs = inputs.tensor()
            object.__setattr__(self, "_inputs", inputs)  # frees the bytes
        return inputs

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input; does not convert stored pixels."""
        return tuple(self._inputs.shape[1:])

    def input_at(self, position: int) -> Tensor:
        """One input by position; does not convert the stored pixels of the others."""
        inputs = self._inputs
        if isinstance(inputs, Pixels):
            return inputs.take(np.array([position])).tensor()[0]
        return inputs[position]

    @property
    def strata(self) -> NDArray[np.int64]:
        """The class of each example, for draws that balance classes; all 0 if the labels are not classes."""
        if self.class_names:
            return self.labels.numpy()
        return np.zeros(len(self), np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: Tensor) -> tuple[Batch, Batch]:
        """Inputs and labels of the examples at these positions."""
        return self.inputs[rows], self.labels[rows]

    def batches(self, size: int, rows: Tensor | None = None) -> Iterator[tuple[Batch, Batch]]:
        """Inputs and labels of all examples in order, or of some rows, at most `size` at a time."""
        if rows is not None:
            return (self.batch(part) for part in torch.split(rows, size))
        return zip(torch.split(self.inputs, size), torch.split(self.labels, size), strict=True)

    def label_texts(self) -> list[str]:
        """The label of each example in words: the name of its class, or its numbers; empty for other labels."""
        if self.class_names:
            return [self.class_names[int(label)] for label in self.labels]
        return [
            text for inputs, labels in self.batches(_TEXT_BATCH) for text in _numbers_in_words(inputs, labels)
        ]

    def positions(self, ids: Ids) -> NDArray[np.int64]:
        """Positions of these ids in this data set; unknown ids are an error."""
        return positions_of(ids, self.ids, what="this data set")

    def take(self, ids: Ids) -> Examples:
        """The examples with these ids, in this order."""
        return self._rows(self.positions(ids))

    def without(self, ids: Ids) -> Examples:
        """All examples except those with these ids; the order stays."""
        keep = np.ones(len(self), bool)
        keep[self.positions(ids)] = False
        return self._rows(np.flatnonzero(keep))

    def with_inputs(self, inputs: Tensor) -> Examples:
        """The same examples with other inputs."""
        return Examples(self.ids, inputs, self.labels, self.class_names, self.readout)

    def with_labels(self, labels: Tensor) -> Examples:
        """The same examples with other labels of the same kind."""
        return Examples(self.ids, self._inputs, labels, self.class_names, self.readout)

    def with_readout(self, readout: Readout) -> Examples:
        """The same examples, whose outputs are read in another way."""
        if readout == self.readout:
            return self
        return Examples(self.ids, self._inputs, self.labels, self.class_names, readout)

    def as_dataset(self) -> Dataset[Any]:
        """The examples as a PyTorch data set of (input, label) pairs."""
        return TensorDataset(self.inputs, self.labels)

    def digest(self) -> str:
        """SHA-256 of ids, inputs and labels."""
        content = hashlib.sha256("\n".join(map(str, self.ids.tolist())).encode())
        inputs = self._inputs
        dtype = torch.float32 if isinstance(inputs, Pixels) else inputs.dtype
        blocks = inputs.blocks() if isinstance(inputs, Pixels) else [inputs]
        _hash_tensor(content, dtype, inputs.shape, blocks)
        _hash_tensor(content, self.labels.dtype, self.labels.shape, [self.labels])
        return content.hexdigest()

    def _rows(self, rows: NDArray[np.int64]) -> Examples:
        index, inputs = torch.from_numpy(rows), self._inputs
        taken = inputs.take(rows) if isinstance(inputs, Pixels) else inputs[index]
        return Examples(self.ids[rows], taken, self.labels[index], self.class_names, self.readout)


def _hash_tensor(
    content: hashlib._Hash, dtype: torch.dtype, shape: torch.Size, blocks: Iterable[Tensor]
) -> None:
    content.update(f"{str(dtype).removeprefix('torch.')}{tuple(shape)}".encode())
    for block in blocks:
        content.update(np.ascontiguousarray(block.numpy()).data)


def as_labels(values: NDArray[Any]) -> Tensor:
    """Class numbers as an int64 tensor."""
    return torch.from_numpy(np.array(values, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Split:
    """Training data, test data, and the training examples to forget.

    Args:
        train: all training examples.
        test: the test examples.
        forget_set: ids of the training examples to forget; must leave at least one to retain.
    """

    train: Examples
    test: Examples
    forget_set: ForgetSet

    def __post_init__(self) -> None:
        if len(self.forget_set.ids) >= len(self.train):
            raise DataError(
                f"Forget set {self.forget_set.name!r} must leave examples to retain; it names "
                f"{len(self.forget_set.ids)} of {len(self.train)} training examples."
            )
        self.train.positions(self.forget_set.ids)  # refuses unknown ids

    @cached_property
    def forget(self) -> Examples:
        """The training examples to forget."""
        return self.train.take(self.forget_set.ids)

    @cached_property
    def retain(self) -> Examples:
        """The training examples to retain."""
        return self.train.without(self.forget_set.ids)


def _numbers_in_words(inputs: Batch, labels: Batch) -> list[str]:
    if not isinstance(labels, Tensor):
        return [""] * size_of(inputs)
    rows = labels.reshape(len(labels), -1)[:, :_SHOWN_NUMBERS].tolist()
    return [", ".join(f"{number:.3g}" for number in row) for row in rows]
