"""Precision: autocast is for forward passes only, and how far two exact computations may differ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def widest_float(device: torch.device) -> torch.dtype:
    """Double precision where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def without_autocast(device: str) -> AbstractContextManager[object]:
    """Turn autocast off, the caller's own included, on this type of device."""
    if not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def active_autocast(device: str) -> torch.dtype | None:
    """The half precision of the autocast context that the caller is in, if any."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def backward_without_autocast(backward: Callable[[Any, Tensor], Any]) -> Callable[[Any, Tensor], Any]:
    """Decorate the backward pass of an autograd node."""

    @wraps(backward)
    def run(ctx: Any, grad: Tensor) -> Any:
        with without_autocast(grad.device.type):
            return backward(ctx, grad)

    return run


@dataclass(frozen=True)
class Tolerance:
    """How far two computations of one squared norm may differ: a wrong rule is off by far more.

    Args:
        relative: share of the value itself.
        share: share of the example's total, since a parameter without influence has a gradient of rounding errors.
        floor: share of the batch's largest, since the gradient of a fitted example consists of rounding errors.
        in_batch: relative difference of an example's outputs and gradient in a batch and alone.
    """

    relative: float
    share: float
    floor: float
    in_batch: float

    @staticmethod
    def of(dtype: torch.dtype) -> Tolerance:
        """Wide for half precision, tight for double."""
        if dtype == torch.float64:
            return Tolerance(1e-7, 1e-10, 1e-14, 1e-6)
        if dtype == torch.float32:
            return Tolerance(3e-3, 1e-5, 1e-8, 0.03)
        return Tolerance(0.1, 0.02, 1e-4, 0.3)
