"""Norms of a whole data set: batch by batch, with ids, progress and sharding."""

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

from remanence.batches import Batch, size_of
from remanence.errors import DataError, InputError
from remanence.gradients.engine_memory import remembering
from remanence.gradients.evaluation_mode import evaluating
from remanence.gradients.example_norms import (
    checked_batch,
    prepare_engine,
    refuse_infinite,
    requested_batch_size,
    total_norms,
)
from remanence.gradients.norm_engine import NormEngine
from remanence.losses import ExampleLoss
from remanence.types import Ids, as_ids

Progress = Callable[[int, int | None], None]
"""(examples done, examples in all if known) -> None, called after every batch."""


class ExampleNorms(NamedTuple):
    """Norms, and the ids of their examples."""

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
        ids: ids of the examples in the set's order; when None those of the set itself (`rm.with_ids`), or
            positions. Ids that a loader yields take precedence.
        loss: as for `example_gradient_norms`, like `parameters`, `dtype` and `squared`.
        parameters: what to differentiate by.
        batch_size: for a dataset; a loader brings its own.
        dtype: precision to compute in.
        squared: return squared norms.
        progress: called after every batch.
        shard: (index, count): this process takes every count-th batch, starting with the index-th. Several
            processes with one thread each are faster than one with several; join their results by id.

    Returns:
        (ids, norms), those of this shard.
    """
    index, count = shard
    if not 0 <= index < count:
        raise InputError(f"`shard` must be (index, count) with 0 <= index < count; got {shard}.")
    engine = prepare_engine(model, loss, parameters, dtype, by_parameter=False)
    batches = _batches(engine, data, batch_size, dtype)
    seen_ids: list[Any] = []
    norms: list[Tensor] = []
    with evaluating(engine.model), remembering(engine):
        for number, (inputs, targets, batch_ids) in enumerate(
            _with_ids(batches, _ids(data) if ids is None else ids)
        ):
            if number % count != index:
                continue
            table = engine.squared_norms(*checked_batch(engine, inputs, targets, dtype))
            refuse_infinite(table, batch_ids)
            seen_ids.extend(batch_ids)
            norms.append(total_norms(table, engine.dtype, squared))
            if progress is not None:
                progress(len(seen_ids), _shard_size(data, count))
    if not norms:
        raise InputError("`data` must hold at least one example for this shard; it holds none.")
    return ExampleNorms(as_ids(np.asarray(seen_ids)), torch.cat(norms))


def _shard_size(data: Dataset[Any] | DataLoader[Any], count: int) -> int | None:
    """Approximate number of examples in this shard, if the data have a length."""
    dataset = data.dataset if isinstance(data, DataLoader) else data
    return -(-len(dataset) // count) if isinstance(dataset, Sized) else None


def _ids(data: Any) -> Sequence[Any] | None:
    """The ids that a data set carries, also through a `Subset`."""
    if isinstance(data, DataLoader):
        return _ids(data.dataset)
    if isinstance(data, Subset):
        inner = _ids(data.dataset)
        return None if inner is None else [inner[i] for i in data.indices]
    ids = getattr(data, "ids", None)
    fits = isinstance(data, Sized) and isinstance(ids, Sized) and len(ids) == len(data)
    return list(np.asarray(ids).tolist()) if fits else None


def _with_ids(
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
                f"There must be one id per example; examples {position} to {stop - 1} have {len(names)}."
            )
        yield inputs, targets, names
        position = stop


def _batches(
    engine: NormEngine,
    data: Dataset[Any] | DataLoader[Any],
    batch_size: int | Literal["auto"],
    dtype: torch.dtype | None,
) -> Iterator[tuple[Batch, Batch, Any]]:
    if isinstance(data, DataLoader):
        for batch in data:
            if len(batch) == 2 and not _in_order(data):
                raise DataError(
                    "A shuffled loader must yield (inputs, targets, ids) to assign norms to examples; "
                    "it yields pairs. Turn shuffling off or add the ids."
                )
            yield batch[0], batch[1], batch[2] if len(batch) > 2 else None
        return
    if isinstance(data, IterableDataset) or not isinstance(data, Sized) or len(data) == 0:
        raise InputError(
            "`data` must hold at least one example and know how many; wrap a stream in a DataLoader."
        )
    step = requested_batch_size(batch_size) or _fitting_batch_size(engine, data, dtype)
    for start in range(0, len(data), step):
        inputs, targets = default_collate([data[i] for i in range(start, min(len(data), start + step))])
        yield inputs, targets, None


def _in_order(loader: DataLoader[Any]) -> bool:
    """Whether batches come in the data set's own order: a custom sampler may do anything."""
    if isinstance(loader.dataset, IterableDataset):
        return True
    batches: Any = loader.batch_sampler
    if batches is None:
        return type(loader.sampler) is SequentialSampler
    return type(batches) is BatchSampler and type(batches.sampler) is SequentialSampler


def _fitting_batch_size(engine: NormEngine, data: Dataset[Any], dtype: torch.dtype | None) -> int:
    inputs, targets = default_collate([data[0]])
    return engine.fitting_batch_size(*checked_batch(engine, inputs, targets, dtype))
