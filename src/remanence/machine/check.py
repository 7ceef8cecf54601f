"""The machine check: run the probes in a subprocess with a time limit, and cache the result."""

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
"""Seconds for one process of probes; importing torch from a cold disk may take ten."""
_INSTRUCTION_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
"""Environment variables that change which CPU instructions torch uses."""
_FORMAT = 1


@dataclass(frozen=True)
class Capability:
    """The result of one probe.

    Args:
        name: name of the probe, such as `bfloat16 matmul` or `cuda`.
        works: whether it gave the right result in time.
        reason: why it does not work; empty if it does.
    """

    name: str
    works: bool
    reason: str = ""


@dataclass(frozen=True)
class MachineReport:
    """What torch supports on this machine.

    Args:
        key: hash of the processor, the torch build and the environment variables that change torch's instructions.
        half: matrix products and convolutions in bfloat16 and float16 on the CPU.
        devices: the available devices, each with whether a small matrix product was right.
    """

    key: str
    half: tuple[Capability, ...]
    devices: tuple[Capability, ...]


@cache
def check_machine() -> MachineReport:
    """What torch supports on this machine; takes some seconds the first time, then it is cached."""
    key = machine_key()
    path = cache_folder() / "machine" / f"{key}.json"
    cached = read_report(path, key)
    if cached is not None:
        return cached
    report = probe_machine(key)
    with contextlib.suppress(OSError):  # without a writable cache, the probes run again next time
        atomic.write_text(path, json.dumps({"format": _FORMAT, **asdict(report)}, indent=2) + "\n")
    return report


def probe_machine(key: str, run: Callable[[Sequence[str]], tuple[str, str]] | None = None) -> MachineReport:
    """Run all probes. If one crashes or hangs its process, it does not work, and the rest run in a new process.

    Args:
        key: key of the report.
        run: replaces `run_probes`.
    """
    results: dict[str, Capability] = {}
    pending = [*HALF_PROBES, *DEVICE_PROBES]
    while pending:
        output, ending = (run or run_probes)(pending)
        answers = dict(line.split("\t", 1) for line in output.splitlines() if "\t" in line)
        results |= {
            name: Capability(name, not answers[name], answers[name]) for name in pending if name in answers
        }
        pending = [name for name in pending if name not in results]
        if pending:  # the process ended during the first of these
            results[pending[0]] = Capability(pending[0], False, ending)
            pending = pending[1:]
    present = [results[name] for name in DEVICE_PROBES if results[name].reason != ABSENT]
    return MachineReport(key, tuple(results[name] for name in HALF_PROBES), tuple(present))


def run_probes(names: Sequence[str], time_limit: float = TIME_LIMIT) -> tuple[str, str]:
    """Run the probes in a process of their own; return its output and how it ended."""
    command = [sys.executable, "-I", probes.__file__, *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            output, _ = process.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0], f"no result within {time_limit:g} seconds"
    return output, _ending(process.returncode)


def _ending(returncode: int) -> str:
    if returncode < 0:
        return f"the process was killed by {signal.Signals(-returncode).name}"
    return f"the process ended with exit code {returncode}"


def read_report(path: Path, key: str) -> MachineReport | None:
    """Read a cached report; None if it is missing, damaged or has another key."""
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
    """Hash of the processor, the torch build and the environment variables that change torch's instructions."""
    facts = [_processor(), platform.machine(), torch.__version__, torch.__config__.show()]
    facts += [f"{name}={os.environ.get(name, '')}" for name in _INSTRUCTION_VARIABLES]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Model and instruction sets of the first processor."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part", "stepping", "microcode")
    return "\n".join(line for line in first if line.startswith(wanted))


def cache_folder() -> Path:
    """$REMANENCE_CACHE, or else `remanence` in the user's cache folder."""
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "remanence"


def usable_threads() -> int:
    """Number of processors that this process may use, by CPU affinity and the quota of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))
