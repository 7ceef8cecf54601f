"""Autocast is for forward passes: the norms' own products are taken in full precision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def uncast(device: str) -> AbstractContextManager[object]:
    """Without autocast, the caller's own included, on this kind of device."""
    if not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def ambient(device: str) -> torch.dtype | None:
    """The half precision of the autocast that the caller is under, if any."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def uncast_backward(backward: Callable[[Any, Tensor], Any]) -> Callable[[Any, Tensor], Any]:
    """A node's backward pass without autocast, wherever the caller runs it."""

    @wraps(backward)
    def run(ctx: Any, grad: Tensor) -> Any:
        with uncast(grad.device.type):
            return backward(ctx, grad)

    return run
