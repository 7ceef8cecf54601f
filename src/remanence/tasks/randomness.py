"""Random generators that depend on their purpose, not on what was drawn before.

Every draw of a run (order of an epoch, batch, noise and dropout of a step) has its own generator, seeded by the seed
of the run and the name of the draw. A run can therefore be resumed without saved random states: the step is enough.
"""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, *name: str | int) -> int:
    """A 63-bit seed for one draw of a run."""
    text = ":".join(str(part) for part in (seed, *name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *name: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A new generator for one draw of a run.

    Args:
        seed: random seed of the run.
        name: parts of the name of the draw, such as `"noise", step`.
        device: device of the generator.
    """
    return torch.Generator(device).manual_seed(derive_seed(seed, *name))
