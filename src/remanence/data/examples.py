"""Examples in memory, named by stable ids."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remanence.errors import DataError
from remanence.types import ForgetSet, Ids, as_ids, positions_of


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and labels, one id each. Rows are found by id; positions never leave this room."""

    ids: Ids
    inputs: Tensor
    labels: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids))
        sizes = {len(self.ids), len(self.inputs), len(self.labels)}
        if len(sizes) != 1:
            raise DataError(f"Ids, inputs and labels must be equally many; got {sorted(sizes)}.")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(
            self.class_names
        ):
            raise DataError(
                f"Labels must be in 0..{len(self.class_names) - 1}; "
                f"got {int(self.labels.min())}..{int(self.labels.max())}."
            )

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
        for tensor in (self.inputs, self.labels):
            array = tensor.numpy()
            content.update(f"{array.dtype}{array.shape}".encode())
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()

    def _rows(self, rows: NDArray[np.int64]) -> Examples:
        index = torch.from_numpy(rows)
        return Examples(self.ids[rows], self.inputs[index], self.labels[index], self.class_names)


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
