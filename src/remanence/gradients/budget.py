"""How many examples go through the model together: from a fixed budget of memory, never from timing."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from remanence.errors import InputError
from remanence.gradients.watch import Script

CPU_BYTES = 256 << 20
"""Activations of one batch on a CPU: enough to keep a core busy, small enough for any machine."""
LARGEST = 1024


def fitting_batch(script: Script, element_size: int, device: torch.device) -> int:
    """Examples whose activations fit in the budget, by what one example's rehearsal made."""
    made = sum(shape.numel() for call in script for shape in call.out_shapes if call.differentiable)
    budget = torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else CPU_BYTES
    return int(max(2, min(LARGEST, budget // max(1, made * element_size))))


def asked_batch(batch_size: int | Literal["auto"]) -> int | None:
    """The size that the caller asked for, None for "auto"."""
    if isinstance(batch_size, str) and batch_size == "auto":
        return None
    if isinstance(batch_size, (int, np.integer)) and not isinstance(batch_size, bool) and batch_size > 0:
        return int(batch_size)
    raise InputError(f"`batch_size` must be 'auto' or a whole number above 0; got {batch_size!r}.")
