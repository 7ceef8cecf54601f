"""Processes that compute for us: Ctrl-C does not hit them while they start, and they do not outlive us."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from remanence.trials.workers import undisturbed


@pytest.mark.parametrize("threads", [0, 3])
def test_ctrl_c_waits_until_a_process_is_started(threads: int) -> None:
    reached, over = [], threading.Event()
    for _ in range(threads):  # any thread may be the one that takes the signal
        threading.Thread(target=over.wait, daemon=True).start()

    def interrupted() -> None:
        with undisturbed():
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
        "import sys, time; from remanence.trials.workers import settle; settle(int(sys.argv[1]))\n"
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
