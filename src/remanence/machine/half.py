"""Refuse half precision on machines where torch crashes or gives wrong results in it."""

from __future__ import annotations

import os

from remanence.errors import InputError
from remanence.machine.check import Capability, check_machine
from remanence.machine.probes import HALF_PROBES, HALVES

PRETEND_VARIABLE = "REMANENCE_PRETEND_NO_HALF"


def half_capabilities() -> tuple[Capability, ...]:
    """Results of the half-precision probes on the CPU; $REMANENCE_PRETEND_NO_HALF makes all of them fail."""
    if os.environ.get(PRETEND_VARIABLE, "") not in ("", "0"):
        reason = f"{PRETEND_VARIABLE} is set"
        return tuple(Capability(name, works=False, reason=reason) for name in HALF_PROBES)
    return check_machine().half


def cannot_run(dtype: str) -> str:
    """Why the CPU cannot compute in this precision; empty if it can."""
    if dtype not in HALVES:
        return ""  # full precision always works
    broken = [
        capability
        for capability in half_capabilities()
        if capability.name.startswith(f"{dtype} ") and not capability.works
    ]
    return f"{broken[0].name}: {broken[0].reason}" if broken else ""


def require_half(argument: str, dtype: str, device: str = "cpu") -> None:
    """Raise InputError if torch fails in this precision on this CPU.

    Args:
        argument: name of the argument that sets the precision, for the message.
        dtype: the precision, such as `bfloat16`.
        device: type of the device; only `cpu` is checked.
    """
    reason = cannot_run(dtype) if device == "cpu" else ""
    if reason:
        raise InputError(
            f"`{argument}` must not be {dtype} on this machine, where torch fails in it ({reason}); "
            "`remanence doctor` shows what works."
        )
