"""The contract of executors, which compute stages on processes of this machine or on a Ray cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from remanence.errors import InputError, UnknownNameError
from remanence.stages.stage import Stage
from remanence.stages.worker import StageOutcome

EXECUTORS = ("process", "ray")


class Executor(Protocol):
    """Runs stages side by side. Their order and retries belong to the scheduler."""

    slots: int
    """How many stages at once."""
    local: bool
    """Whether all workers are processes of this machine, so that half-written artifacts can be recognized."""

    def start(self, stage: Stage) -> None:
        """Start a stage whose inputs are finished; at most `slots` at a time."""
        ...

    def wait(self, seconds: float) -> list[tuple[Stage, StageOutcome]]:
        """The stages that have ended, waiting up to `seconds` for one."""
        ...

    def close(self, *, abandon: bool) -> None:
        """Release the workers; when abandoning, at once."""
        ...


def kept_open(name: str, *, workers: int, address: str | None = None) -> AbstractContextManager[None]:
    """Keep what an executor starts, a Ray cluster, for all executors that are made during the block.

    Args:
        name: `process` or `ray`.
        workers: how many stages at once.
        address: address of a Ray cluster; by default a local one is started.
    """
    if name != "ray":
        return nullcontext()
    from remanence.stages.ray_cluster import connected

    return connected(workers, address)


def make_executor(name: str, root: Path, *, workers: int, address: str | None = None) -> Executor:
    """The executor of this name for a store.

    Args:
        name: `process` or `ray`.
        root: the store; with a cluster, a folder that all of its machines share.
        workers: how many stages at once; 0 to compute in this process.
        address: address of a Ray cluster; by default a local one is started.
    """
    if name == "process":
        if address is not None:
            raise InputError(f"`address` needs the executor `ray`; got the executor `process` and {address}.")
        from remanence.stages.processes import Processes
        from remanence.stages.this_process import ThisProcess

        return Processes(root, workers) if workers else ThisProcess(root)
    if name == "ray":
        from remanence.stages.ray_cluster import RayCluster

        return RayCluster(root, workers, address)
    raise UnknownNameError("executor", name, EXECUTORS)
