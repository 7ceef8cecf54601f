"""Check which devices and precisions torch supports on this machine; the result is cached."""

from remanence.machine.check import Capability, MachineReport, cache_folder, check_machine, usable_threads
from remanence.machine.half import cannot_run, half_capabilities, require_half

__all__ = [
    "Capability",
    "MachineReport",
    "cache_folder",
    "cannot_run",
    "check_machine",
    "half_capabilities",
    "require_half",
    "usable_threads",
]
