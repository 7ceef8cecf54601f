"""Random numbers that depend on what they are for, not on what was drawn before.

Every draw of a run (the order of an epoch, the batch, noise and dropout of a step) comes from its own generator,
seeded by the run's seed and the draw's name. A run that stops and goes on needs no saved random states: the
step number says it all.
"""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, *name: str | int) -> int:
    """A 63-bit seed for one named draw of a run."""
    text = ":".join(str(part) for part in (seed, *name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *name: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for one named draw of a run."""
    return torch.Generator(device).manual_seed(derive_seed(seed, *name))
