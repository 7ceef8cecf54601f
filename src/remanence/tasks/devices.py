"""The device that a task computes on."""

from __future__ import annotations

import os

import torch

from remanence.errors import InputError

AUTO = "auto"
"""The accelerator of this machine if there is one, otherwise the CPU."""


def resolve_device(name: str | torch.device = AUTO) -> torch.device:
    """The device of this name: `auto`, or any that torch knows and that is present (cpu, cuda:1, mps, xpu).

    Under torchrun, an accelerator without a number is the one with the local rank of this process.
    """
    if isinstance(name, str) and name == AUTO:
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        name = accelerator or "cpu"
    try:
        device = torch.device(name)
        if str(device) == device.type != "cpu" and "LOCAL_RANK" in os.environ:
            device = torch.device(device.type, int(os.environ["LOCAL_RANK"]))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"`device` must be 'auto' or a device of this machine, such as cpu or cuda:1; got {str(name)!r}: {reason}"
        ) from None
    return device
