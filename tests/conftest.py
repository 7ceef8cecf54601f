"""What all tests share: one thread per process, so that the same work gives the same bits on any machine."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # for this process, before torch is loaded, and for those it starts
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # a suite started in the background ignores Ctrl-C, and so would the commands that it interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that the many short ones fill both workers up to the end (with --no-loadscope-reorder)."""
    items.sort(key=lambda item: _turn(item.path.relative_to(Path(__file__).parent).parts))


def _turn(parts: tuple[str, ...]) -> int:
    if parts[0] == "unit":
        return 0 if len(parts) == 2 else 2  # what is about the package as a whole takes no time and says most
    return 2 if parts[0] == "oracles" else 1


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a half precision that plain torch cannot compute in on this machine."""
    for mark in item.iter_markers("half"):
        from remanence.machine import cannot_run

        if reason := cannot_run(mark.args[0]):
            pytest.skip(f"half precision fails here: {reason}")


WaitUntil = Callable[[Callable[[], object], "subprocess.Popen[Any]"], None]


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """Wait for a sign of progress of a process that is to be killed; it must not have ended by then."""

    def wait(progress: Callable[[], object], process: "subprocess.Popen[Any]") -> None:
        deadline = time.monotonic() + 120
        while not progress():
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline, "no sign of progress within two minutes"
            time.sleep(0.002)

    return wait


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make a folder once for all workers of this session; tests copy it before they change anything."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, build: Callable[[Path], object]) -> Path:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (shared / name).exists():
                build(shared / f"{name}-unfinished")
                (shared / f"{name}-unfinished").rename(shared / name)
        return shared / name

    return make


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Overrides that make any study a matter of seconds."""
    return [
        "seeds=1",
        "train.epochs=1",
        "train.record=1",
        "unlearn.epochs=1",
        "tune.learning_rates=[]",
        "audit.oracles=1",
        "audit.metrics=['ua']",
        "forget.sizes=[0.05]",
    ]
