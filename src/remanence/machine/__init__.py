"""Check which devices and precisions torch supports on this machine; the result is cached."""

from remanence.machine.check import Capability, MachineReport, cache_folder, check_machine, usable_threads
from remanence.machine.half import cannot_run, half_capabilities, require_half
from remanence.machine.norm_constants import NormConstants, norm_constants, using_constants, write_constants

__all__ = [
    "Capability",
    "MachineReport",
    "NormConstants",
    "cache_folder",
    "cannot_run",
    "check_machine",
    "half_capabilities",
    "norm_constants",
    "require_half",
    "usable_threads",
    "using_constants",
    "write_constants",
]
