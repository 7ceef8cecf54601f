"""Any PyTorch data set, with a stable id for each example."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset
from torch.utils.data import default_collate as torch_collate

from remanence.batches import Batch, pins_memory, tensors_of
from remanence.data.examples import Examples
from remanence.errors import DataError
from remanence.types import Ids, as_ids

Collate = Callable[[list[Any]], Any]
"""List of items -> batch."""
Unpack = Callable[[Any], tuple[Batch, Batch]]
"""Batch -> inputs and targets."""
_CHECKED_ROWS = 32
_TARGETS_BATCH = 256


class IdentifiedDataset(Dataset[Any]):
    """A data set in which row i is always the example `ids[i]`.

    Hashes of a few rows are kept and compared whenever these rows are read again. A data set that changes its order is
    refused, because its ids would then name other examples. If inputs are augmented at random, so that two reads of
    a row differ, only the targets are compared.

    Args:
        dataset: a data set of items of any structure.
        ids: one unique id per row; positions by default.
        collate_fn: makes a batch of a list of items; torch's own by default.
        unpack: splits a batch into inputs and targets; by default as `default_unpack` does.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        ids: ArrayLike | None = None,
        collate_fn: Collate | None = None,
        unpack: Unpack | None = None,
    ) -> None:
        n = _length(dataset)
        self.dataset = dataset
        self.collate: Collate = collate_fn or _default_collate(dataset)
        self.unpack: Unpack = unpack or _default_unpack(dataset)
        self.ids: Ids = _default_ids(dataset, n) if ids is None else as_ids(ids)
        if len(self.ids) != n:
            raise DataError(f"`ids` must be as many as the data set's {n} examples; got {len(self.ids)}.")
        rows = np.unique(np.linspace(0, n - 1, min(n, _CHECKED_ROWS)).astype(np.int64)).tolist() if n else []
        first, second = ({row: self.fingerprint(row) for row in rows} for _ in range(2))
        self.deterministic = all(first[row][0] == second[row][0] for row in rows)
        self._fingerprints = first
        for row in rows:
            self._compare(row, second[row])

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> Any:
        item = self._item(row)
        if row in self._fingerprints:
            self._compare(row, self._fingerprint_of(item))
        return item

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> tuple[Batch, Batch]:
        """Inputs and targets of some rows."""
        return self._unpacked([self[int(row)] for row in rows])

    def fingerprint(self, row: int) -> tuple[str, str]:
        """Hashes of the input and of the target of a row."""
        return self._fingerprint_of(self._item(row))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, if the data set has a list of them; otherwise empty."""
        names = getattr(_innermost(self.dataset), "classes", None)
        return tuple(map(str, names)) if isinstance(names, list | tuple) else ()

    @property
    def kept_targets(self) -> Tensor | None:
        """All targets, if the data set keeps class numbers as `targets`, so that no item is read; None otherwise."""
        kept = getattr(self.dataset, "targets", None)
        if not isinstance(kept, Tensor | np.ndarray | list) or len(kept) != len(self):
            return None
        tensor = torch.as_tensor(kept)
        return tensor if tensor.dim() == 1 and not tensor.is_floating_point() else None

    @cached_property
    def targets(self) -> Tensor | None:
        """All targets, for which the data set is read once; None if they are not tensors of one shape."""
        kept = self.kept_targets
        if kept is not None:
            return kept
        self.check()
        every = np.array_split(np.arange(len(self)), max(1, len(self) // _TARGETS_BATCH))
        parts = [targets for _, targets in self.read_ahead(every)]
        same = all(isinstance(part, Tensor) and part.shape[1:] == parts[0].shape[1:] for part in parts)
        return torch.cat(parts) if same else None

    def read_ahead(
        self, batches: Iterable[NDArray[np.int64]], workers: int = 0
    ) -> Iterator[tuple[Batch, Batch]]:
        """Inputs and targets of one batch of rows after the other.

        Args:
            batches: the rows of each batch.
            workers: processes that read ahead.
        """
        loader = DataLoader(
            self.dataset,
            batch_sampler=(rows.tolist() for rows in batches),
            collate_fn=self.collate,
            num_workers=workers,
            pin_memory=pins_memory(),
            generator=torch.Generator(),  # a loader without its own draws from torch's random state
        )
        return map(self.unpack, loader)

    def check(self) -> None:
        """Read some rows again and refuse a data set whose order has changed."""
        if _length(self.dataset) != len(self):
            raise DataError(
                f"The data set must keep its {len(self)} examples; it now has {_length(self.dataset)}."
            )
        for row in self._fingerprints:
            self._compare(row, self.fingerprint(row))

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
        pairs = [_as_pair(self[row], row) for row in range(len(self))]
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

    def _item(self, row: int) -> Any:
        return self.dataset[row]

    def _unpacked(self, items: list[Any]) -> tuple[Batch, Batch]:
        try:
            batch = self.collate(items)
        except (TypeError, RuntimeError, ValueError) as error:
            raise DataError(
                f"The items of the data set must make a batch; a {type(items[0]).__name__} did not: "
                f"{str(error).splitlines()[0]} Pass a `collate_fn` that makes batches of them."
            ) from error
        return self.unpack(batch)

    def _fingerprint_of(self, item: Any) -> tuple[str, str]:
        inputs, targets = self._unpacked([item])
        return _hash(inputs), _hash(targets)

    def _compare(self, row: int, fingerprint: tuple[str, str]) -> None:
        input_hash, target_hash = self._fingerprints[row]
        if fingerprint[1] != target_hash or (self.deterministic and fingerprint[0] != input_hash):
            raise DataError(
                f"The data set must keep its order; row {row}, which was id {self.ids[row]}, now holds another "
                "example. Shuffle in the DataLoader or the sampler, not in the data set."
            )


def with_ids(
    dataset: Dataset[Any],
    ids: ArrayLike | None = None,
    *,
    collate_fn: Collate | None = None,
    unpack: Unpack | None = None,
) -> IdentifiedDataset:
    """Give each example of a PyTorch data set a stable id.

    Args:
        dataset: a map-style data set; never changed. Items may have any structure.
        ids: one unique whole number or text per example. By default the positions; for a `Subset`, the
            positions in the original data set, so that an example keeps its id.
        collate_fn: makes a batch of a list of items; torch's own by default.
        unpack: splits a batch into inputs and targets; by default a pair, or a dict with `labels`.

    Raises:
        DataError: duplicate ids, a wrong number of ids, or a data set whose order changes.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> pairs = TensorDataset(torch.rand(3, 2), torch.tensor([0, 1, 1]))
        >>> with_ids(pairs, ["ann", "bob", "cy"]).examples().labels.tolist()
        [0, 1, 1]
    """
    return IdentifiedDataset(dataset, ids, collate_fn, unpack)


def default_unpack(batch: Any) -> tuple[Batch, Batch]:
    """Inputs and targets of a batch: of a pair, of a dict with labels, or of a tuple whose last part is the target.

    Anything else is both input and target, as for an autoencoder.
    """
    if isinstance(batch, Mapping):
        for key in ("labels", "label", "targets", "target"):
            if key in batch:
                return {name: value for name, value in batch.items() if name != key}, batch[key]
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, tuple | list) and len(batch) > 2:
        return tuple(batch[:-1]), batch[-1]
    return batch, batch


def _default_collate(dataset: Dataset[Any]) -> Collate:
    return dataset.collate if isinstance(dataset, IdentifiedDataset) else torch_collate


def _default_unpack(dataset: Dataset[Any]) -> Unpack:
    return dataset.unpack if isinstance(dataset, IdentifiedDataset) else default_unpack


def _innermost(dataset: Any) -> Any:
    while isinstance(dataset, Subset | IdentifiedDataset):
        dataset = dataset.dataset
    return dataset


def _as_pair(item: Any, row: int) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"Each item must be a pair (input, target); row {row} is a {type(item).__name__}.")
    return item[0], item[1]


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


def _hash(batch: Batch) -> str:
    """Hash of the tensors of a batch, or of its text if it holds none."""
    tensors = tensors_of(batch)
    content = hashlib.sha256(b"" if tensors else repr(batch).encode())
    for tensor in tensors:
        array: NDArray[Any] = np.ascontiguousarray(tensor.detach().cpu().numpy())
        content.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return content.hexdigest()


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
