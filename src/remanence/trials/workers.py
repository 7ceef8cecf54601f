"""Processes that compute something for us, one thread each, and leave when we do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

from remanence.errors import RemanenceError

Submit = Callable[..., Callable[[], Any]]
"""(function, *arguments) -> a call that waits for the result."""


@contextmanager
def workers(count: int) -> Iterator[Submit]:
    """Submit calls to `count` processes; with one, they are simply made when the result is asked for."""
    if count == 1:
        yield lambda function, *arguments: lambda: function(*arguments)
        return
    pool = ProcessPoolExecutor(
        count,
        mp_context=process_context("remanence.trials"),
        initializer=settle,
        initargs=(os.getpid(), dict(os.environ)),
    )
    try:
        yield lambda function, *arguments: _waiting(_submitted(pool, function, *arguments))
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()


def process_context(*modules: str) -> ForkServerContext | SpawnContext:
    """Start processes as copies of one that has loaded these modules: loading torch anew in each takes seconds.

    The modules of the first call count. Platforms without a fork server have no better than to load everything anew.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context


def _submitted(pool: ProcessPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    with undisturbed():  # it may start a process
        return pool.submit(function, *arguments)


def _waiting(future: Future[Any]) -> Callable[[], Any]:
    def result() -> Any:
        try:
            return future.result()
        except BrokenProcessPool:
            raise RemanenceError(
                "A worker process was killed (out of memory?). What was finished is kept; --resume goes on."
            ) from None

    return result


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits: a process that is half started would die with a traceback of its own.

    That process inherits the mask, which says nothing of this process's other threads: any of them may take the signal,
    and Python then tells the main thread. So its handler waits too.
    """
    came: list[int] = []
    ours = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number)) if ours else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
            if came:
                signal.raise_signal(signal.SIGINT)


def settle(parent: int, environment: Mapping[str, str] | None = None) -> None:
    """One thread; Ctrl-C is the parent's to handle; a worker does not outlive its parent.

    Args:
        parent: process id of the one that it works for.
        environment: variables of that process, where they are not inherited: from a fork server they are those of the
            moment at which the server was started.
    """
    os.environ.update(environment or {})
    use_one_thread()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave_with_parent() -> None:
        started_by = multiprocessing.parent_process()
        if started_by is not None:
            started_by.join()
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def use_one_thread() -> None:
    """Parallelism is in the processes; and the same number of threads gives the same bits everywhere."""
    import torch

    torch.set_num_threads(1)
