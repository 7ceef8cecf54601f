"""Norms of a whole data set: batch after batch, with ids, progress, and a share for each process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    default_collate,
)

from remanence.errors import DataError, InputError
from remanence.gradients.batches import Batch, as_targets, check_targets, placed, size_of
from remanence.gradients.budget import asked_batch, fitting_batch
from remanence.gradients.engine import Engine
from remanence.gradients.losses import ExampleLoss
from remanence.gradients.norms import evaluating, prepare, refuse_infinite, total_norms, wide
from remanence.types import Ids, as_ids

Progress = Callable[[int, int | None], None]
"""(examples done, examples in all if known) -> None, called after every batch."""


class ExampleNorms(NamedTuple):
    """Norms and whose they are."""

    ids: Ids
    norms: Tensor


def dataset_gradient_norms(
    model: nn.Module,
    data: Dataset[Any] | DataLoader[Any],
    *,
    ids: Sequence[Any] | None = None,
    loss: str | ExampleLoss = "cross_entropy",
    parameters: Iterable[str | Tensor] | None = None,
    batch_size: int | Literal["auto"] = "auto",
    dtype: torch.dtype | None = None,
    squared: bool = False,
    progress: Progress | None = None,
    shard: tuple[int, int] = (0, 1),
) -> ExampleNorms:
    """The gradient norm of every example of a data set, in the set's order.

    Args:
        model: any module.
        data: a dataset of (input, target) pairs, or a loader of (inputs, targets) or (inputs, targets, ids).
        ids: names of the examples in the set's order; when None those of the set itself (`rm.with_ids`), or
            positions. Ids that a loader yields win.
        loss: as for `example_gradient_norms`, like `parameters`, `dtype` and `squared`.
        parameters: what to differentiate by.
        batch_size: for a dataset; a loader brings its own.
        dtype: compute in another precision.
        squared: squared norms instead.
        progress: told how far it is after every batch.
        shard: (index, count): this process takes every count-th batch from the index-th on. Several
            processes of one thread are faster than one of several; put their results together by id.

    Returns:
        (ids, norms), those of this shard.
    """
    index, count = shard
    if not 0 <= index < count:
        raise InputError(f"`shard` must be (index, count) with 0 <= index < count; got {shard}.")
    engine = prepare(model, loss, parameters, dtype, by_parameter=False)
    batches = _batches(engine, data, batch_size, dtype)
    names: list[Any] = []
    norms: list[Tensor] = []
    with evaluating(engine.model):
        for number, (inputs, targets, own) in enumerate(_named(batches, _ids(data) if ids is None else ids)):
            if number % count != index:
                continue
            check_targets(targets, size_of(inputs))
            inputs, targets = (placed(part, engine.model, wide(dtype)) for part in (inputs, targets))
            table = engine.squared_norms(inputs, targets)
            refuse_infinite(table, own)
            names.extend(own)
            norms.append(total_norms(table, engine.dtype, squared))
            if progress is not None:
                progress(len(names), _share(data, count))
    if not norms:
        raise InputError("`data` must hold at least one example for this shard; it holds none.")
    return ExampleNorms(as_ids(np.asarray(names)), torch.cat(norms))


def _share(data: Dataset[Any] | DataLoader[Any], count: int) -> int | None:
    """About how many examples this shard has, if the data know their length."""
    dataset = data.dataset if isinstance(data, DataLoader) else data
    return -(-len(dataset) // count) if isinstance(dataset, Sized) else None


def _ids(data: Any) -> Sequence[Any] | None:
    """The ids that a data set brings, those of a part of it included."""
    if isinstance(data, DataLoader):
        return _ids(data.dataset)
    if isinstance(data, Subset):
        inner = _ids(data.dataset)
        return None if inner is None else [inner[i] for i in data.indices]
    found = getattr(data, "ids", None)
    fits = isinstance(data, Sized) and isinstance(found, Sized) and len(found) == len(data)
    return list(np.asarray(found).tolist()) if fits else None


def _named(
    batches: Iterator[tuple[Batch, Batch, Any]], ids: Sequence[Any] | None
) -> Iterator[tuple[Batch, Batch, list[Any]]]:
    """Batches with their examples' ids: the loader's own, the caller's, or positions."""
    position = 0
    for inputs, targets, own in batches:
        stop = position + size_of(inputs)
        if own is not None:
            names = own.tolist() if isinstance(own, Tensor) else list(own)
        else:
            names = list(range(position, stop)) if ids is None else list(ids[position:stop])
        if len(names) != stop - position:
            raise DataError(
                f"There must be one id an example; examples {position} to {stop - 1} have {len(names)}."
            )
        yield inputs, targets, names
        position = stop


def _batches(
    engine: Engine,
    data: Dataset[Any] | DataLoader[Any],
    batch_size: int | Literal["auto"],
    dtype: torch.dtype | None,
) -> Iterator[tuple[Batch, Batch, Any]]:
    if isinstance(data, DataLoader):
        for batch in data:
            if len(batch) == 2 and not _in_order(data):
                raise DataError(
                    "A shuffled loader must yield (inputs, targets, ids) to tell whose norms are whose; "
                    "it yields pairs. Turn shuffling off or add the ids."
                )
            yield batch[0], as_targets(batch[1]), batch[2] if len(batch) > 2 else None
        return
    if isinstance(data, IterableDataset) or not isinstance(data, Sized) or len(data) == 0:
        raise InputError(
            "`data` must hold at least one example and know how many; wrap a stream in a DataLoader."
        )
    step = asked_batch(batch_size) or _fitting(engine, data, dtype)
    for start in range(0, len(data), step):
        inputs, targets = default_collate([data[i] for i in range(start, min(len(data), start + step))])
        yield inputs, targets, None


def _in_order(loader: DataLoader[Any]) -> bool:
    """Whether batches come in the data set's own order: a sampler of the caller's own may do anything."""
    if isinstance(loader.dataset, IterableDataset):
        return True
    batches: Any = loader.batch_sampler
    if batches is None:
        return type(loader.sampler) is SequentialSampler
    return type(batches) is BatchSampler and type(batches.sampler) is SequentialSampler


def _fitting(engine: Engine, data: Dataset[Any], dtype: torch.dtype | None) -> int:
    """As many examples as fit in memory, by one of them."""
    first = tuple(placed(part, engine.model, wide(dtype)) for part in default_collate([data[0]]))
    return fitting_batch(engine.rehearsed(*first).script, engine.dtype.itemsize, engine.device)
