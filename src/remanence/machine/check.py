"""The machine check: run the probes in a subprocess with a time limit, and keep the result."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch

from remanence.machine import probes
from remanence.machine.probes import ABSENT, DEVICE_PROBES, HALF_PROBES
from remanence.storage import atomic

CACHE_VARIABLE = "REMANENCE_CACHE"
TIME_LIMIT = 60.0
"""Seconds for one process of probes; torch alone may need ten to load from a cold disk."""
_SETTINGS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
"""Variables by which a user changes which instructions torch uses, and so what works."""
_FORMAT = 1


@dataclass(frozen=True)
class Capability:
    """One thing that torch can or cannot do here.

    Args:
        name: the probe, such as `bfloat16 matmul` or `cuda`.
        works: whether it ended in time with the right result.
        reason: why it does not work; empty when it does.
    """

    name: str
    works: bool
    reason: str = ""


@dataclass(frozen=True)
class MachineReport:
    """What plain torch can do on this machine.

    Args:
        key: hash of the processor, the torch build and the variables that change which instructions torch uses.
        half: matrix products and convolutions in bfloat16 and float16 on the CPU.
        devices: the devices that are here, each with whether a small matrix product came out right.
    """

    key: str
    half: tuple[Capability, ...]
    devices: tuple[Capability, ...]


@cache
def check_machine() -> MachineReport:
    """What plain torch can do here: from the cache, or found out now, which takes some seconds."""
    key = machine_key()
    path = cache_folder() / "machine" / f"{key}.json"
    known = read_report(path, key)
    if known is not None:
        return known
    report = probe_machine(key)
    with contextlib.suppress(OSError):  # a folder that cannot be written only means probing again next time
        atomic.write_text(path, json.dumps({"format": _FORMAT, **asdict(report)}, indent=2) + "\n")
    return report


def probe_machine(key: str, run: Callable[[Sequence[str]], tuple[str, str]] | None = None) -> MachineReport:
    """Run all probes; one that crashes or hangs its process counts as not working, the rest get a new process."""
    results: dict[str, Capability] = {}
    todo = [*HALF_PROBES, *DEVICE_PROBES]
    while todo:
        printed, ending = (run or run_probes)(todo)
        answers = dict(line.split("\t", 1) for line in printed.splitlines() if "\t" in line)
        results |= {
            name: Capability(name, not answers[name], answers[name]) for name in todo if name in answers
        }
        todo = [name for name in todo if name not in results]
        if todo:  # the process ended within the first of these
            results[todo[0]] = Capability(todo[0], False, ending)
            todo = todo[1:]
    present = [results[name] for name in DEVICE_PROBES if results[name].reason != ABSENT]
    return MachineReport(key, tuple(results[name] for name in HALF_PROBES), tuple(present))


def run_probes(names: Sequence[str], time_limit: float = TIME_LIMIT) -> tuple[str, str]:
    """Run the script in a process of its own; return what it printed and how it ended."""
    command = [sys.executable, "-I", probes.__file__, *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0], f"no result within {time_limit:g} seconds"
    return printed, _ending(process.returncode)


def _ending(returncode: int) -> str:
    if returncode < 0:
        return f"the process was killed by {signal.Signals(-returncode).name}"
    return f"the process ended with exit code {returncode}"


def read_report(path: Path, key: str) -> MachineReport | None:
    """The report in a file; None when there is none, or it is damaged or about something else."""
    try:
        document = json.loads(path.read_text())
        if document["format"] != _FORMAT or document["key"] != key:
            return None
        half, devices = (tuple(Capability(**row) for row in document[part]) for part in ("half", "devices"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if [capability.name for capability in half] != list(HALF_PROBES):
        return None
    return MachineReport(key, half, devices)


def machine_key() -> str:
    """A hash that changes with the processor, the torch build and the variables that torch reads."""
    facts = [_processor(), platform.machine(), torch.__version__, torch.__config__.show()]
    facts += [f"{name}={os.environ.get(name, '')}" for name in _SETTINGS]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Model and instruction sets of the first processor, as the system tells them."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part", "stepping", "microcode")
    return "\n".join(line for line in first if line.startswith(wanted))


def cache_folder() -> Path:
    """$REMANENCE_CACHE, else `remanence` in the user's cache folder."""
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "remanence"


def usable_threads() -> int:
    """Processors that this process may use, by its affinity and by the quota of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))
