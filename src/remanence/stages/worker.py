"""What a worker does with one stage on any executor: compute it, and keep a log if it fails."""

from __future__ import annotations

import contextlib
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remanence.errors import FULL_DISK, RemanenceError
from remanence.stages.stage import Stage
from remanence.stages.store import Store
from remanence.stages.timings import this_machine

Ending = Literal["done", "failed", "full", "broken", "killed"]
"""`failed`: would fail again; `broken`: may succeed another time; `full`: the disk is full; `killed`: the worker
process disappeared."""


@dataclass(frozen=True)
class StageOutcome:
    """How one attempt at a stage ended.

    Args:
        ending: see `Ending`.
        seconds: how long it took.
        message: what went wrong.
        machine: where it was computed.
    """

    ending: Ending
    seconds: float = 0.0
    message: str = ""
    machine: str = ""


def attempt(root: Path, stage: Stage) -> StageOutcome:
    """Compute a stage; its output, and the traceback if it fails, go to its log."""
    started = time.perf_counter()
    try:
        return _attempt(Store(root), stage, started)
    except OSError as error:  # the log itself cannot be written: on a full disk its last flush fails
        return _failure(error, started)


def _attempt(store: Store, stage: Stage, started: float) -> StageOutcome:
    path = store.log(stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        try:
            store.compute(stage)
        except Exception as error:
            traceback.print_exc(file=log)
            return _failure(error, started)
    path.unlink(missing_ok=True)
    return StageOutcome("done", time.perf_counter() - started, machine=this_machine())


def _failure(error: Exception, started: float) -> StageOutcome:
    message = str(error) if isinstance(error, RemanenceError) else f"{type(error).__name__}: {error}"
    return StageOutcome(_ending(error), time.perf_counter() - started, message)


def _ending(error: Exception) -> Ending:
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return "full"
    passing = isinstance(error, OSError | MemoryError) and not isinstance(error, RemanenceError)
    return "broken" if passing else "failed"
