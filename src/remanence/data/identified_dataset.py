"""Any PyTorch data set, with a stable id for each example."""

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

_CHECKED_ROWS = 32


class IdentifiedDataset(Dataset[tuple[Any, Any]]):
    """A data set of (input, target) pairs in which row i is always the example `ids[i]`.

    Hashes of a few rows are kept and compared whenever these rows are read again. A data set that changes its order is
    refused, because its ids would then name other examples. If inputs are augmented at random, so that two reads of
    a row differ, only the targets are compared.

    Args:
        dataset: a data set of (input, target) pairs.
        ids: one unique id per row; positions by default.
    """

    def __init__(self, dataset: Dataset[Any], ids: ArrayLike | None = None) -> None:
        n = _length(dataset)
        self.dataset = dataset
        self.ids: Ids = _default_ids(dataset, n) if ids is None else as_ids(ids)
        if len(self.ids) != n:
            raise DataError(f"`ids` must be as many as the data set's {n} examples; got {len(self.ids)}.")
        rows = np.unique(np.linspace(0, n - 1, min(n, _CHECKED_ROWS)).astype(np.int64)).tolist() if n else []
        first, second = ({row: _fingerprint(self._read(row)) for row in rows} for _ in range(2))
        self.deterministic = all(first[row][0] == second[row][0] for row in rows)
        self._fingerprints = first
        for row in rows:
            self._compare(row, second[row])

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        pair = self._read(row)
        if row in self._fingerprints:
            self._compare(row, _fingerprint(pair))
        return pair

    def check(self) -> None:
        """Read some rows again and refuse a data set whose order has changed."""
        if _length(self.dataset) != len(self):
            raise DataError(
                f"The data set must keep its {len(self)} examples; it now has {_length(self.dataset)}."
            )
        for row in self._fingerprints:
            self._compare(row, _fingerprint(self._read(row)))

    def examples(self, class_names: Sequence[str] | None = None) -> Examples:
        """Load all examples into memory.

        Args:
            class_names: names of the classes; by default `dataset.classes`, or else 0, 1, … as text.
        """
        if not self.deterministic:
            raise DataError(
                "Inputs must be the same at every read; these differ between two reads of one row. "
                "Pass the data set without its random augmentation."
            )
        self.check()
        pairs = [self[row] for row in range(len(self))]
        if not pairs:
            raise DataError("The data set must hold at least one example; it is empty.")
        labels = torch.tensor([_label(pair[1], self.ids[row]) for row, pair in enumerate(pairs)])
        names = class_names if class_names is not None else getattr(self.dataset, "classes", None)
        if names is None:
            names = [str(number) for number in range(int(labels.max()) + 1)]
        inputs = _stack([pair[0] for pair in pairs], self.ids)
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

    def _compare(self, row: int, fingerprint: tuple[str, str]) -> None:
        input_hash, target_hash = self._fingerprints[row]
        if fingerprint[1] != target_hash or (self.deterministic and fingerprint[0] != input_hash):
            raise DataError(
                f"The data set must keep its order; row {row}, which was id {self.ids[row]}, now holds another "
                "example. Shuffle in the DataLoader or the sampler, not in the data set."
            )


def with_ids(dataset: Dataset[Any], ids: ArrayLike | None = None) -> IdentifiedDataset:
    """Give each example of a PyTorch data set a stable id.

    Args:
        dataset: a map-style data set of (input, target) pairs; never changed.
        ids: one unique whole number or text per example. By default the positions; for a `Subset`, the
            positions in the original data set, so that an example keeps its id.

    Raises:
        DataError: duplicate ids, a wrong number of ids, or a data set whose order changes.

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
            f"The data set must be map-style, with a length and items by position; got a {type(dataset).__name__}."
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


def _label(target: Any, example_id: int | str) -> int:
    array: NDArray[Any] = np.asarray(target)
    if array.size != 1 or array.dtype.kind not in "iu":
        raise DataError(f"Targets must be whole-number classes; that of id {example_id} is {target!r}.")
    return int(array.reshape(()))


def _stack(inputs: Sequence[Any], ids: Ids) -> Tensor:
    tensors: list[Tensor] = []
    for example_id, value in zip(ids, inputs, strict=True):
        if not isinstance(value, Tensor | np.ndarray):
            raise DataError(
                f"Inputs must be tensors; that of id {example_id} is a {type(value).__name__}. Add a transform."
            )
        tensor = torch.as_tensor(value).detach()
        if tensors and tensor.shape != tensors[0].shape:
            raise DataError(
                f"Inputs must have one shape; that of id {example_id} is {tuple(tensor.shape)}, "
                f"of id {ids[0]} {tuple(tensors[0].shape)}."
            )
        tensors.append(tensor)
    return torch.stack(tensors)
