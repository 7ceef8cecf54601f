"""Processes that compute for us: Ctrl-C does not hit them while they start, and they do not outlive us."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from remanence.errors import InputError
from remanence.stages import Read, Stage, Store, run_stages
from remanence.stages.processes import Processes, interrupts_postponed
from remanence.storage import Draft


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadVariable(Stage):
    kind = "variable"

    name: str
    when: int

    def compute(self, draft: Draft, read: Read) -> None:
        import torch

        draft.document("value", {"value": os.environ.get(self.name), "threads": torch.get_num_threads()})


@pytest.mark.parametrize("threads", [0, 3])
def test_ctrl_c_waits_until_a_process_is_started(threads: int) -> None:
    reached, over = [], threading.Event()
    for _ in range(threads):  # any thread may be the one that takes the signal
        threading.Thread(target=over.wait, daemon=True).start()

    def interrupted() -> None:
        with interrupts_postponed():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            reached.append("the end of the block")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    over.set()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_worker_leaves_with_its_parent() -> None:
    worker = (
        "import sys, time; from remanence.stages.processes import set_up_worker; set_up_worker(int(sys.argv[1]))\n"
        "print('settled', flush=True); time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys\n"
        f"command = [sys.executable, '-c', {worker!r}, str(os.getpid())]\n"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)\n"
        "print(child.stdout.readline().strip(), child.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    word, child = done.stdout.split()
    assert word == "settled"
    deadline = time.time() + 30
    while _lives(int(child)) and time.time() < deadline:
        time.sleep(0.02)
    assert not _lives(int(child))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_have_the_environment_of_now_and_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that workers are copied from was started with the environment of an earlier moment."""
    store, values = Store(tmp_path), []
    for when, value in enumerate(("before", "after", None)):
        if value is None:
            monkeypatch.delenv("REMANENCE_TESTED")
        else:
            monkeypatch.setenv("REMANENCE_TESTED", value)
        stage = ReadVariable(name="REMANENCE_TESTED", when=when)
        run_stages([stage], store, workers=1)
        values.append(store.get(stage).document("value"))
    assert [document["value"] for document in values] == ["before", "after", None]
    assert {document["threads"] for document in values} == {1}


def test_there_must_be_a_worker(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`workers` must be at least 1; got 0"):
        Processes(tmp_path, 0)
