"""An executor that computes stages on a Ray cluster: a local one, or one that is already running.

If this process is already connected to a cluster, that one is used, and stays connected afterwards.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remanence.errors import InputError
from remanence.stages.processes import set_up_computing
from remanence.stages.stage import Stage
from remanence.stages.worker import StageOutcome, attempt


class RayCluster:
    """One Ray task per stage, one core each. Ray's own retries are off: the scheduler retries."""

    def __init__(self, root: Path, workers: int, address: str | None) -> None:
        if workers < 1:
            raise InputError(
                f"`workers` must be at least 1 on Ray; got {workers}. A task that only this process has cannot be "
                "computed there: give it an import path."
            )
        self.slots, self.local, self._root = workers, address is None, root.resolve()
        self._address = address
        self._ray: Any = None  # started with the first stage: a finished study needs no cluster
        self._task: Any = None
        self._connected_before = False
        self._running: dict[Any, Stage] = {}

    def start(self, stage: Stage) -> None:
        """Submit a stage."""
        if self._ray is None:
            self._ray = _import_ray()
            self._connected_before = self._ray.is_initialized()
            if not self._connected_before:
                _connect(self._ray, self.slots, self._address)
            environment = {"env_vars": _environment()}
            remote = self._ray.remote(num_cpus=1, max_retries=0, runtime_env=environment)
            self._task = remote(_attempt)
        self._running[self._task.remote(self._root, Path.cwd(), stage)] = stage

    def wait(self, seconds: float) -> list[tuple[Stage, StageOutcome]]:
        """The stages that have ended; a killed worker is an outcome too."""
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [(self._running.pop(task), self._outcome(task)) for task in ended]

    def close(self, *, abandon: bool) -> None:
        """Leave the cluster, if this executor joined it; a local one ends."""
        for task in self._running if abandon else ():
            self._ray.cancel(task, force=True)
        if self._ray is not None and not self._connected_before:
            self._ray.shutdown()

    def _outcome(self, reference: Any) -> StageOutcome:
        try:
            outcome: StageOutcome = self._ray.get(reference)
        except (
            self._ray.exceptions.RayTaskError
        ) as error:  # raised by the task: another attempt would raise it too
            return StageOutcome("failed", message=f"{type(error.cause).__name__}: {error.cause}")
        except self._ray.exceptions.RayError as error:
            return StageOutcome("killed", message=f"its Ray worker was lost ({type(error).__name__})")
        return outcome


@contextlib.contextmanager
def connected(workers: int, address: str | None) -> Iterator[None]:
    """Stay connected to one cluster during the block, for several calls of `run_stages`."""
    ray = _import_ray()
    if ray.is_initialized():
        yield
        return
    _connect(ray, workers, address)
    try:
        yield
    finally:
        ray.shutdown()


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
    except ImportError:
        raise InputError(
            "The executor `ray` needs the package ray; install it with `pip install 'remanence[ray]'`, or use the "
            "executor `process`."
        ) from None
    return ray


def _connect(ray: Any, workers: int, address: str | None) -> None:
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        _knock(address)
        if address is None:
            # said, because with no address Ray joins whatever cluster this machine or RAY_ADDRESS knows of
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **options)
        else:
            ray.init(address=address, **options)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"The Ray cluster at {address or 'this machine'} cannot be reached ({reason}). "
            "Finished work is kept; give another address, or use the executor `process`."
        ) from None


def _knock(address: str | None) -> None:
    """Check that something listens at the address; Ray itself would try for half a minute."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def _environment() -> dict[str, str]:
    """What workers on other machines need from this one's environment: the data folder and the code."""
    kept = {name: value for name in ("REMANENCE_DATA", "PYTHONPATH") if (value := os.environ.get(name))}
    return kept | {"OMP_NUM_THREADS": "1"}


def _attempt(root: Path, folder: Path, stage: Stage) -> StageOutcome:
    """Compute a stage in the folder of the command, in which settings name data and models by relative paths."""
    if folder.is_dir():
        os.chdir(folder)
    set_up_computing()
    return attempt(root, stage)
