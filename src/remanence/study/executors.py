"""Who computes stages: one small contract, processes of this machine, or a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from remanence.errors import InputError, UnknownNameError
from remanence.study.stages import Stage
from remanence.study.worker import Outcome

EXECUTORS = ("process", "ray")


class Executor(Protocol):
    """Runs stages side by side. Retrying, and what comes before what, is the scheduler's business."""

    slots: int
    """How many at once."""
    local: bool
    """Whether all workers are processes of this machine, so that their half-written pieces can be told."""

    def start(self, stage: Stage) -> None:
        """Begin a stage whose inputs are there; only while fewer than `slots` are under way."""
        ...

    def wait(self, seconds: float) -> list[tuple[Stage, Outcome]]:
        """The stages that have ended, waiting up to so long for one."""
        ...

    def close(self, *, abandon: bool) -> None:
        """Let the workers go; when abandoning, at once."""
        ...


def make_executor(name: str, root: Path, *, workers: int, address: str | None = None) -> Executor:
    """The executor of this name, for a store.

    Args:
        name: `process` or `ray`.
        root: the store; with a cluster, a folder that all of its machines share.
        workers: how many stages at once.
        address: of a Ray cluster; a local one is started when there is none.
    """
    if name == "process":
        if address is not None:
            raise InputError(f"`address` is that of a Ray cluster; use --executor ray for {address}.")
        from remanence.study.processes import Processes

        return Processes(root, workers)
    if name == "ray":
        from remanence.study.ray_cluster import RayCluster

        return RayCluster(root, workers, address)
    raise UnknownNameError("executor", name, EXECUTORS)
