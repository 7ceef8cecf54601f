"""Refuse half precision where plain torch would crash or compute nonsense."""

from __future__ import annotations

import os

from remanence.errors import InputError
from remanence.machine.check import Capability, check_machine
from remanence.machine.probes import HALF_PROBES, HALVES

PRETEND_VARIABLE = "REMANENCE_PRETEND_NO_HALF"


def half_capabilities() -> tuple[Capability, ...]:
    """What the machine check says about half precision on the CPU, or that it is to be taken as broken."""
    if pretends_no_half():
        reason = f"{PRETEND_VARIABLE} is set"
        return tuple(Capability(name, works=False, reason=reason) for name in HALF_PROBES)
    return check_machine().half


def pretends_no_half() -> bool:
    """Whether the user wants half precision reported as broken, to see what happens then."""
    return os.environ.get(PRETEND_VARIABLE, "") not in ("", "0")


def cannot_run(dtype: str) -> str:
    """Why the CPU cannot compute in this precision; empty when it can, as always for full precision."""
    if dtype not in HALVES:
        return ""  # nothing to probe
    broken = [
        capability
        for capability in half_capabilities()
        if capability.name.startswith(f"{dtype} ") and not capability.works
    ]
    return f"{broken[0].name}: {broken[0].reason}" if broken else ""


def require_half(argument: str, dtype: str, device: str = "cpu") -> None:
    """Raise InputError when `argument` asks for a precision in which plain torch fails on this CPU."""
    reason = cannot_run(dtype) if device == "cpu" else ""
    if reason:
        raise InputError(
            f"`{argument}` must not be {dtype} on this machine, where torch fails in it ({reason}); "
            "`remanence doctor` shows what works."
        )
