"""Examples in memory, named by stable ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from remanence.data.pixels import Pixels
from remanence.errors import DataError
from remanence.types import ForgetSet, Ids, as_ids, positions_of


@dataclass(frozen=True, eq=False, init=False)
class Examples:
    """Inputs and labels with one stable id per example.

    Args:
        ids: one unique whole number or text per example.
        inputs: a tensor, or stored pixels, which become a tensor on first use.
        labels: class numbers.
        class_names: names of the classes, in the order of their numbers.
    """

    ids: Ids
    labels: Tensor
    class_names: tuple[str, ...]
    _inputs: Tensor | Pixels

    def __init__(
        self, ids: ArrayLike, inputs: Tensor | Pixels, labels: Tensor, class_names: tuple[str, ...]
    ) -> None:
        values = {"ids": as_ids(ids), "labels": labels, "class_names": class_names, "_inputs": inputs}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        sizes = {len(self.ids), len(inputs), len(labels)}
        if len(sizes) != 1:
            raise DataError(f"Ids, inputs and labels must be equally many; got {sorted(sizes)}.")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(class_names):
            raise DataError(
                f"Labels must be in 0..{len(class_names) - 1}; got {int(labels.min())}..{int(labels.max())}."
            )

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

    def __len__(self) -> int:
        return len(self.ids)

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
        return Examples(self.ids[rows], taken, self.labels[index], self.class_names)


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
