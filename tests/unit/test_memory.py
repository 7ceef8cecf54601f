"""Freed memory stays with the process: counted in page faults, in a process that nothing else has prepared."""

import subprocess
import sys

import pytest

from remanence import keep_freed_memory

pytest.importorskip("resource", reason="page faults are counted on Unix only")
_PASSES = """
import resource
import torch
from remanence import keep_freed_memory
torch.set_num_threads(1)
assert keep_freed_memory()
x = torch.zeros(1 << 19)
def one_pass():
    kept = [x + i for i in range(16)]  # as activations are, until the backward pass has used them
for _ in range(5):
    one_pass()
counts = []
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    one_pass()
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(counts))
"""


def faults_per_pass() -> int:
    """The fewest of 20 passes: a system that is short of memory takes pages away at any time."""
    done = subprocess.run([sys.executable, "-c", _PASSES], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_blocks_of_a_few_megabytes_are_reused() -> None:
    """16 blocks of 2 MiB have 8,192 pages. Without the setting, most processes clear all of them in every pass."""
    assert faults_per_pass() < 4


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert keep_freed_memory() is False
