"""Random generators that depend on their purpose, not on what was drawn before.

Every draw of a run (order of an epoch, batch, noise and dropout of a step) has its own generator, seeded by the seed
of the run and the name of the draw. A run can therefore be resumed without saved random states: the step is enough.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from remanence.machine.random_state import OWN_GENERATORS, keeping_random_state


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


def generator_device(device: torch.device) -> torch.device:
    """Where to draw for a device: on the device itself, or on the CPU if it has no generators."""
    return device if device.type in OWN_GENERATORS else torch.device("cpu")


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch on the CPU and on a device during the block; its random state is restored afterwards."""
    with keeping_random_state(device):
        # torch.manual_seed would, without a GPU, keep a traceback of every call in memory
        torch.default_generator.manual_seed(seed)
        if device.type in OWN_GENERATORS:
            module = torch.get_device_module(device.type)
            with module.device(device) if hasattr(module, "device") else nullcontext():
                module.manual_seed(seed)
        yield
