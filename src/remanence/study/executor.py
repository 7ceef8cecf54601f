"""Run stages on several processes, inputs before what uses them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from remanence.errors import RemanenceError
from remanence.study.stages import Stage, in_order
from remanence.study.store import Store

_RESTARTS = 3
"""How often a pool whose worker was killed is started anew before giving up."""


@dataclass(frozen=True)
class Tally:
    """What a run of stages came to."""

    computed: int
    reused: int
    seconds: Mapping[str, float]
    """Work done by kind of stage, added up over processes."""


def run_stages(
    goals: Sequence[Stage],
    store: Store,
    *,
    workers: int,
    on_start: Callable[[list[Stage], list[Stage]], None] = lambda reused, todo: None,
    on_done: Callable[[Stage], None] = lambda stage: None,
) -> Tally:
    """Make every artifact that is missing, `workers` at a time, one thread each.

    Args:
        goals: the stages wanted; what they need comes along.
        store: where artifacts are.
        workers: how many processes.
        on_start: told once which stages are already there and which are to be computed.
        on_done: told after each computed stage.
    """
    stages = in_order(goals)
    reused = [stage for stage in stages if store.holds(stage)]
    done = {stage.key for stage in reused}
    todo = [stage for stage in stages if stage.key not in done]
    on_start(reused, todo)
    seconds: dict[str, float] = {}

    def note(stage: Stage, took: float) -> None:
        done.add(stage.key)
        seconds[stage.kind.name] = seconds.get(stage.kind.name, 0.0) + took
        on_done(stage)

    for _ in range(_RESTARTS):
        try:
            _run_pool([stage for stage in todo if stage.key not in done], done, store, workers, note)
            return Tally(len(todo), len(reused), dict(seconds))
        except BrokenProcessPool:
            continue
    raise RemanenceError(
        f"Worker processes were killed {_RESTARTS} times (out of memory?); finished stages are kept."
    )


def _run_pool(
    todo: list[Stage], done: set[str], store: Store, workers: int, note: Callable[[Stage, float], None]
) -> None:
    if not todo:
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_settle_worker, initargs=(os.getpid(),)
    )
    running: dict[Future[float], Stage] = {}
    waiting = list(todo)
    try:
        while waiting or running:
            for stage in [stage for stage in waiting if all(need.key in done for need in stage.needs)]:
                running[pool.submit(_compute, store.root, stage)] = stage
                waiting.remove(stage)
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                stage = running.pop(future)
                note(stage, future.result())
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        store.sweep()
        raise
    pool.shutdown()


def _compute(root: Path, stage: Stage) -> float:
    started = time.perf_counter()
    Store(root).compute(stage)
    return time.perf_counter() - started


def _settle_worker(parent: int) -> None:
    """One thread a worker; Ctrl-C is the parent's to handle; a worker does not outlive its parent."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
