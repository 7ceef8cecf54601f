"""Keep torch's random state on the CPU and on one device."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

OWN_GENERATORS = ("cuda", "mps", "xpu")
"""Accelerators with random generators of their own; others draw on the CPU."""


def keeping_random_state(device: torch.device) -> AbstractContextManager[None]:
    """Restore the random state of the CPU, and of the device if it has its own, after the block."""
    if device.type in OWN_GENERATORS:
        return torch.random.fork_rng(devices=[device], device_type=device.type)
    return torch.random.fork_rng(devices=[])
