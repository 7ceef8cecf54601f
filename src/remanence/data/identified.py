"""Anybody's data set, with a stable name for each example."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset

from remanence.data.examples import Examples
from remanence.errors import DataError
from remanence.types import Ids, as_ids

_PROBES = 32


class IdentifiedDataset(Dataset[tuple[Any, Any]]):
    """A data set of (input, target) whose row i is the example `ids[i]`, today and at every later look.

    A few rows are remembered when it is made and compared whenever they are read again: a data set that
    changes its order is refused, because its ids would then name other examples. Inputs may be augmented at
    random (they differ between two reads of one row); then only the targets are compared.
    """

    def __init__(self, dataset: Dataset[Any], ids: ArrayLike | None = None) -> None:
        n = _length(dataset)
        self.dataset = dataset
        self.ids: Ids = _default_ids(dataset, n) if ids is None else as_ids(ids)
        if len(self.ids) != n:
            raise DataError(f"`ids` must be as many as the data set's {n} examples; got {len(self.ids)}.")
        rows = np.unique(np.linspace(0, n - 1, min(n, _PROBES)).astype(np.int64)).tolist() if n else []
        once, again = ({row: _fingerprint(self._read(row)) for row in rows} for _ in range(2))
        self.steady = all(once[row][0] == again[row][0] for row in rows)
        self._known = once
        for row in rows:
            self._compare(row, again[row])

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        pair = self._read(row)
        if row in self._known:
            self._compare(row, _fingerprint(pair))
        return pair

    def check(self) -> None:
        """Read the remembered rows again and refuse a data set whose order has changed."""
        if _length(self.dataset) != len(self):
            raise DataError(
                f"The data set must keep its {len(self)} examples; it now has {_length(self.dataset)}."
            )
        for row in self._known:
            self._compare(row, _fingerprint(self._read(row)))

    def examples(self, class_names: Sequence[str] | None = None) -> Examples:
        """All of it in memory. Class names default to the data set's `classes`, else to 0, 1, … as numbers."""
        if not self.steady:
            raise DataError(
                "Inputs must be the same at every read; these differ between two reads of one row. "
                "Give the data set without its random augmentation."
            )
        self.check()
        pairs = [self[row] for row in range(len(self))]
        if not pairs:
            raise DataError("The data set must hold at least one example; it is empty.")
        labels = torch.tensor([_label(pair[1], self.ids[row]) for row, pair in enumerate(pairs)])
        names = class_names if class_names is not None else getattr(self.dataset, "classes", None)
        if names is None:
            names = [str(number) for number in range(int(labels.max()) + 1)]
        inputs = _stacked([pair[0] for pair in pairs], self.ids)
        outside = (labels < 0) | (labels >= len(names))
        if outside.any():
            row = int(outside.int().argmax())
            raise DataError(
                f"Labels must be in 0..{len(names) - 1}; the label of id {self.ids[row]} is {int(labels[row])}."
            )
        return Examples(self.ids, inputs, labels, tuple(str(name) for name in names))

    def _read(self, row: int) -> tuple[Any, Any]:
        item: Any = self.dataset[row]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(
                f"Each item must be a pair (input, target); row {row} is a {type(item).__name__}."
            )
        return item[0], item[1]

    def _compare(self, row: int, found: tuple[str, str]) -> None:
        known = self._known[row]
        if found[1] != known[1] or (self.steady and found[0] != known[0]):
            raise DataError(
                f"The data set must keep its order; row {row}, which was id {self.ids[row]}, now holds another "
                "example. Shuffle in the loader or the sampler, not in the data set."
            )


def with_ids(dataset: Dataset[Any], ids: ArrayLike | None = None) -> IdentifiedDataset:
    """Any torch data set of (input, target) pairs with a stable id for each example.

    Args:
        dataset: with a length and items by position; it is read as it is, never changed.
        ids: one unique whole number or text an example. By default the positions; for a `Subset`, the
            positions in what it was cut from, so that an example keeps its id.

    Raises:
        DataError: duplicate ids, another number of ids than examples, or an order that changes.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> pairs = TensorDataset(torch.rand(3, 2), torch.tensor([0, 1, 1]))
        >>> with_ids(pairs, ["ann", "bob", "cy"]).examples().labels.tolist()
        [0, 1, 1]
    """
    return IdentifiedDataset(dataset, ids)


def _length(dataset: Dataset[Any]) -> int:
    try:
        if isinstance(dataset, IterableDataset):
            raise TypeError
        return len(dataset)  # type: ignore[arg-type]
    except TypeError:
        raise DataError(
            f"The data set must have a length and items by position; a {type(dataset).__name__} has not."
        ) from None


def _default_ids(dataset: Dataset[Any], n: int) -> Ids:
    if isinstance(dataset, IdentifiedDataset):
        return dataset.ids
    if isinstance(dataset, Subset):
        inner = _default_ids(dataset.dataset, _length(dataset.dataset))
        return as_ids(inner[np.asarray(dataset.indices, dtype=np.int64)])
    return as_ids(np.arange(n))


def _fingerprint(pair: tuple[Any, Any]) -> tuple[str, str]:
    return _hash(pair[0]), _hash(pair[1])


def _hash(value: Any) -> str:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    array: NDArray[Any] = np.asarray(value)
    content = repr(value).encode() if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + content).hexdigest()


def _label(target: Any, each: Any) -> int:
    array: NDArray[Any] = np.asarray(target)
    if array.size != 1 or array.dtype.kind not in "iu":
        raise DataError(f"Targets must be whole-number classes; that of id {each} is {target!r}.")
    return int(array.reshape(()))


def _stacked(inputs: Sequence[Any], ids: Ids) -> Tensor:
    found: list[Tensor] = []
    for each, value in zip(ids, inputs, strict=True):
        if not isinstance(value, Tensor | np.ndarray):
            raise DataError(
                f"Inputs must be tensors; that of id {each} is a {type(value).__name__}. Add a transform."
            )
        tensor = torch.as_tensor(value).detach()
        if found and tensor.shape != found[0].shape:
            raise DataError(
                f"Inputs must have one shape; that of id {each} is {tuple(tensor.shape)}, "
                f"of id {ids[0]} {tuple(found[0].shape)}."
            )
        found.append(tensor)
    return torch.stack(found)
