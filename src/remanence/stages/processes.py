"""Worker processes of this machine, one thread each. A killed worker loses its own stage and no other."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from remanence.errors import InputError
from remanence.memory import keep_freed_memory
from remanence.stages.stage import Stage
from remanence.stages.worker import StageOutcome, attempt

_PRELOADED = ("remanence.study.figure_stage", "sklearn.linear_model", "torch._dynamo")
"""What nearly every worker needs. The first optimizer of a process loads `torch._dynamo`, which takes a second."""


class _Worker:
    """One process and the stage it computes."""

    def __init__(self, root: Path) -> None:
        context = process_context(*_PRELOADED)
        self.pipe, far_end = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_serve, args=(far_end, root, os.getpid(), dict(os.environ)), daemon=True
        )
        self.process.start()
        far_end.close()
        self.stage: Stage | None = None

    def finish(self) -> tuple[Stage, StageOutcome] | None:
        """The stage and its outcome, if it has ended."""
        assert self.stage is not None  # only busy workers are asked
        try:
            if not self.pipe.poll():
                return None
            outcome: StageOutcome = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            outcome = StageOutcome("killed", message=f"its process was killed (exit {self.process.exitcode})")
        stage, self.stage = self.stage, None
        return stage, outcome


class Processes:
    """The default executor."""

    local = True

    def __init__(self, root: Path, workers: int) -> None:
        if workers < 1:
            raise InputError(f"`workers` must be at least 1; got {workers}.")
        self.slots, self._root = workers, root
        self._workers: list[_Worker] = []

    def start(self, stage: Stage) -> None:
        """Hand a stage to an idle worker, or to a new one."""
        self._drop_dead_workers()
        idle = next((worker for worker in self._workers if worker.stage is None), None)
        if idle is None:
            with interrupts_postponed():
                idle = _Worker(self._root)
                self._workers.append(idle)
        idle.stage = stage
        with contextlib.suppress(
            ConnectionError
        ):  # it died while idle; `wait` reports it and the stage is retried
            idle.pipe.send(stage)

    def wait(self, seconds: float) -> list[tuple[Stage, StageOutcome]]:
        """The stages that have ended, those of killed processes included."""
        busy = [worker for worker in self._workers if worker.stage is not None]
        wait([worker.pipe for worker in busy], timeout=seconds)
        ended = [end for worker in busy if (end := worker.finish()) is not None]
        self._drop_dead_workers()
        return ended

    def close(self, *, abandon: bool) -> None:
        """Ask the workers to leave; when abandoning, kill them."""
        for worker in self._workers:
            if abandon:
                worker.process.kill()
            else:
                with contextlib.suppress(OSError):
                    worker.pipe.send(None)
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers = []

    def _drop_dead_workers(self) -> None:
        """Except those that died at a stage: the next `wait` reports them."""
        self._workers = [
            worker for worker in self._workers if worker.stage is not None or worker.process.exitcode is None
        ]


def process_context(*modules: str) -> ForkServerContext | SpawnContext:
    """Start processes as copies of one that has loaded these modules: loading torch anew in each takes seconds.

    The modules of the first call count. Platforms without a fork server load everything anew.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context


@contextlib.contextmanager
def interrupts_postponed() -> Iterator[None]:
    """Delay Ctrl-C until the block ends: a process interrupted while it starts would print its own traceback.

    The new process inherits the signal mask. In this process another thread may still receive the signal, and Python
    runs the handler in the main thread, so the handler is replaced as well.
    """
    received: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, frame: received.append(number)) if in_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
            if received:
                signal.raise_signal(signal.SIGINT)


def set_up_worker(parent: int, environment: Mapping[str, str] | None = None) -> None:
    """Use one thread, leave Ctrl-C to the parent, and exit when the parent is gone.

    Args:
        parent: process id of the parent.
        environment: variables of the parent; a fork server passes on those of the moment at which it was started.
    """
    if environment is not None:
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
    set_up_computing()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave_with_parent() -> None:
        started_by = multiprocessing.parent_process()
        if started_by is not None:
            started_by.join()
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def set_up_computing() -> None:
    """Use one thread: parallelism is in the processes, and the same number of threads gives the same bits everywhere.

    Memory that torch frees stays with the process.
    """
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()


def _serve(pipe: Connection, root: Path, parent: int, environment: Mapping[str, str]) -> None:
    """A worker's life: receive stages, send outcomes, until told to leave."""
    set_up_worker(parent, environment)
    with contextlib.suppress(EOFError, ConnectionError):  # the parent was killed
        while (stage := pipe.recv()) is not None:
            pipe.send(attempt(root, stage))
