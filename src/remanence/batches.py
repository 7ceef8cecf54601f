"""A batch as the caller passed it: a tensor, or a tuple or dict of tensors with one row per example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from remanence.errors import InputError

Batch = Any
"""A tensor, or a tuple, list or mapping of tensors; other leaves (flags, None) pass as they are."""


def tensors_of(batch: Batch) -> list[Tensor]:
    """The tensors of a batch, depth first."""
    if isinstance(batch, Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        return [tensor for value in batch.values() for tensor in tensors_of(value)]
    if isinstance(batch, (tuple, list)):
        return [tensor for value in batch for tensor in tensors_of(value)]
    return []


def size_of(inputs: Batch) -> int:
    """Number of examples: the common first dimension of the batch's tensors."""
    tensors = tensors_of(inputs)
    if not tensors:
        raise InputError(f"`inputs` must hold at least one tensor; got {type(inputs).__name__}.")
    sizes = {tensor.shape[0] if tensor.dim() else 0 for tensor in tensors}
    if len(sizes) > 1:
        raise InputError(
            f"All tensors in `inputs` must have one row per example; their first sizes are {sorted(sizes)}."
        )
    size = sizes.pop()
    if size == 0:
        raise InputError("`inputs` must hold at least one example; got an empty batch.")
    return size


def as_targets(targets: Any) -> Batch:
    """Targets as tensors: an array, or a list of numbers, becomes one."""
    if isinstance(targets, np.ndarray) or (isinstance(targets, list) and not tensors_of(targets)):
        try:
            tensor = torch.as_tensor(targets)
        except (TypeError, ValueError, RuntimeError) as problem:
            raise InputError(f"`targets` must be tensors or numbers; {problem}.") from problem
        return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor
    return targets


def check_targets(targets: Batch, n: int) -> None:
    for tensor in tensors_of(targets):
        if tensor.shape[:1] != (n,):
            raise InputError(
                f"`targets` must have one row per example, {n} in total; got shape {tuple(tensor.shape)}."
            )


def rows(batch: Batch, start: int, stop: int) -> Batch:
    return mapped(batch, lambda tensor: tensor[start:stop])


def cloned(batch: Batch) -> Batch:
    """A copy, for models that change their inputs in place."""
    return mapped(batch, Tensor.clone)


def single(batch: Batch, i: int) -> Batch:
    """A copy of example i alone."""
    return cloned(rows(batch, i, i + 1))


def take(batch: Batch, index: Tensor) -> Batch:
    return mapped(batch, lambda tensor: tensor[index])


def moved(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device; from pinned memory, without waiting for the copy."""
    return mapped(batch, lambda tensor: tensor.to(device, non_blocking=True))


def pins_memory() -> bool:
    """Whether this machine has an accelerator that copies from pinned memory without waiting."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is not None and accelerator.type in ("cuda", "xpu")


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's first parameter or buffer; the CPU if it has none."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def placed(batch: Batch, model: nn.Module, dtype: torch.dtype | None = None) -> Batch:
    """The batch on the model's device, detached from any graph; floating tensors cast to `dtype` if given."""
    anchor = next(model.parameters(), None)
    device = anchor.device if anchor is not None else None

    def place(tensor: Tensor) -> Tensor:
        cast = dtype if dtype is not None and tensor.is_floating_point() else None
        return tensor.detach().to(device=device, dtype=cast)

    return mapped(batch, place)


def call(model: Callable[..., Any], inputs: Batch) -> Any:
    """The model's outputs: a tuple goes in as positional arguments, a mapping as keyword arguments."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


def mapped(batch: Batch, change: Any) -> Batch:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: mapped(value, change) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(mapped(value, change) for value in batch)
    return batch
