"""What a worker does with one stage, on whichever executor: compute it, keep a log if it fails."""

from __future__ import annotations

import contextlib
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remanence.errors import FULL_DISK, RemanenceError
from remanence.study.ledger import machine
from remanence.study.stages import Stage
from remanence.study.store import Store

Ending = Literal["done", "failed", "full", "broken", "killed"]
"""`failed`: wrong by its nature, no use trying again; `broken`: may go well another time; `full`: no room left;
`killed`: the process went away without a word."""


@dataclass(frozen=True)
class Outcome:
    """How one attempt at a stage ended.

    Args:
        ending: see `Ending`.
        seconds: how long it took.
        sentence: what went wrong.
        machine: where it was done; a cluster has several.
    """

    ending: Ending
    seconds: float = 0.0
    sentence: str = ""
    machine: str = ""


def attempt(root: Path, stage: Stage) -> Outcome:
    """Compute a stage; what it prints, and the traceback if it fails, goes to its log."""
    started = time.perf_counter()
    try:
        return _attempt(Store(root), stage, started)
    except OSError as error:  # the log itself cannot be written: on a full disk, what fails last is its flush
        return Outcome(_ending(error), time.perf_counter() - started, _sentence(error))


def _attempt(store: Store, stage: Stage, started: float) -> Outcome:
    log = store.log(stage)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as said, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            store.compute(stage)
        except Exception as error:
            traceback.print_exc(file=said)
            return Outcome(_ending(error), time.perf_counter() - started, _sentence(error))
    log.unlink(missing_ok=True)
    return Outcome("done", time.perf_counter() - started, machine=machine())


def _ending(error: Exception) -> Ending:
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return "full"
    passing = isinstance(error, OSError | MemoryError) and not isinstance(error, RemanenceError)
    return "broken" if passing else "failed"


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, RemanenceError) else f"{type(error).__name__}: {error}"
