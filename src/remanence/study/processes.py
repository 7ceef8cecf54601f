"""Worker processes of this machine, one thread each. One that is killed takes its own stage with it, no other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from remanence.errors import InputError
from remanence.study.stages import Stage
from remanence.study.worker import Outcome, attempt
from remanence.trials.workers import process_context, settle, undisturbed


class _Worker:
    """One process, and the stage it is at."""

    def __init__(self, root: Path) -> None:
        context = process_context("remanence.study", "remanence.audit", "sklearn.linear_model")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, root, os.getpid(), dict(os.environ)), daemon=True
        )
        self.process.start()
        theirs.close()
        self.stage: Stage | None = None

    def finish(self) -> tuple[Stage, Outcome] | None:
        """What became of the stage, if there is news."""
        assert self.stage is not None  # only busy workers are asked
        try:
            if not self.pipe.poll():
                return None
            outcome: Outcome = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            outcome = Outcome("killed", sentence=f"its process was killed (exit {self.process.exitcode})")
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
        self._forget_the_dead()
        idle = next((each for each in self._workers if each.stage is None), None)
        if idle is None:
            with undisturbed():
                idle = _Worker(self._root)
                self._workers.append(idle)
        idle.stage = stage
        with contextlib.suppress(ConnectionError):  # it died idle; `wait` will say so, and it is tried again
            idle.pipe.send(stage)

    def wait(self, seconds: float) -> list[tuple[Stage, Outcome]]:
        """Ended stages, a killed process's among them."""
        busy = [each for each in self._workers if each.stage is not None]
        wait([each.pipe for each in busy], timeout=seconds)
        found = [news for each in busy if (news := each.finish()) is not None]
        self._forget_the_dead()
        return found

    def _forget_the_dead(self) -> None:
        """But not one that died at its stage since it was asked: the next `wait` will hear of it."""
        self._workers = [
            each for each in self._workers if each.stage is not None or each.process.exitcode is None
        ]

    def close(self, *, abandon: bool) -> None:
        """Ask the workers to leave, or make them."""
        for each in self._workers:
            if abandon:
                each.process.kill()
            else:
                with contextlib.suppress(OSError):
                    each.pipe.send(None)
        for each in self._workers:
            each.process.join()
            each.pipe.close()
        self._workers = []


def _serve(pipe: Connection, root: Path, parent: int, environment: Mapping[str, str]) -> None:
    """A worker's life: stages in, outcomes out, until told to go or left alone."""
    settle(parent, environment)
    with contextlib.suppress(EOFError, ConnectionError):  # the parent was killed
        while (stage := pipe.recv()) is not None:
            pipe.send(attempt(root, stage))
