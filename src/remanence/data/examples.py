"""Examples in memory, named by stable ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from remanence.data.pixels import Pixels
from remanence.errors import DataError
from remanence.types import ForgetSet, Ids, as_ids, positions_of


@dataclass(frozen=True, eq=False, init=False)
class Examples:
    """Inputs and labels, one id each. Rows are found by id; positions never leave this room.

    Args:
        ids: one unique whole number or text each.
        inputs: a tensor; or stored pixels, which become one when first asked for.
        labels: class numbers.
        class_names: by number.
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
        found = self._inputs
        if isinstance(found, Pixels):
            found = found.numbers()
            object.__setattr__(self, "_inputs", found)  # the bytes are let go
        return found

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input; pixels stay bytes for that."""
        return tuple(self._inputs.shape[1:])

    def input_at(self, position: int) -> Tensor:
        """One input; the others' pixels stay bytes for that."""
        found = self._inputs
        return found.take(np.array([position])).numbers()[0] if isinstance(found, Pixels) else found[position]

    def __len__(self) -> int:
        return len(self.ids)

    def positions(self, ids: Ids) -> NDArray[np.int64]:
        """Where these ids stand in this set."""
        return positions_of(ids, self.ids, what="this data set")

    def take(self, ids: Ids) -> Examples:
        """The examples with these ids, in this order."""
        return self._rows(self.positions(ids))

    def without(self, ids: Ids) -> Examples:
        """All other examples, in their order."""
        keep = np.ones(len(self), bool)
        keep[self.positions(ids)] = False
        return self._rows(np.flatnonzero(keep))

    def digest(self) -> str:
        """A hash of ids, inputs and labels: the same data, the same hash."""
        content = hashlib.sha256("\n".join(map(str, self.ids.tolist())).encode())
        inputs = self._inputs
        kind = torch.float32 if isinstance(inputs, Pixels) else inputs.dtype
        blocks = inputs.blocks() if isinstance(inputs, Pixels) else [inputs]
        _hash(content, kind, inputs.shape, blocks)
        _hash(content, self.labels.dtype, self.labels.shape, [self.labels])
        return content.hexdigest()

    def _rows(self, rows: NDArray[np.int64]) -> Examples:
        index, inputs = torch.from_numpy(rows), self._inputs
        taken = inputs.take(rows) if isinstance(inputs, Pixels) else inputs[index]
        return Examples(self.ids[rows], taken, self.labels[index], self.class_names)


def _hash(content: hashlib._Hash, kind: torch.dtype, shape: torch.Size, blocks: Iterable[Tensor]) -> None:
    """Add a tensor, which comes in blocks."""
    content.update(f"{str(kind).removeprefix('torch.')}{tuple(shape)}".encode())
    for block in blocks:
        content.update(np.ascontiguousarray(block.numpy()).data)


@dataclass(frozen=True, eq=False)
class Split:
    """Training data, the part of it to forget, and test data. The retain set is derived."""

    train: Examples
    test: Examples
    forget_set: ForgetSet

    def __post_init__(self) -> None:
        if len(self.forget_set.ids) >= len(self.train):
            raise DataError(
                f"Forget set {self.forget_set.name!r} must leave something to keep; it names "
                f"{len(self.forget_set.ids)} of {len(self.train)} training examples."
            )
        retain = self.train.without(self.forget_set.ids)
        object.__setattr__(self, "_forget", self.train.take(self.forget_set.ids))
        object.__setattr__(self, "_retain", retain)

    @property
    def forget(self) -> Examples:
        """The examples to forget."""
        forget: Examples = self.__dict__["_forget"]
        return forget

    @property
    def retain(self) -> Examples:
        """The training examples that stay."""
        retain: Examples = self.__dict__["_retain"]
        return retain
