"""A model under DDP or FSDP in the user's own loop, on two processes: the trace of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import remanence as rm
from remanence.storage import open_folder, read_trace
from remanence.training.ranks import Ranks, _buckets

pytestmark = pytest.mark.own_model

JOB = Path(__file__).with_name("sharded_job.py")
NAMES = ("norms", "confidence", "error")


def start(folder: Path, *kinds: str) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [
        sys.executable,
        *([] if kinds[0].startswith("single") else launcher),
        str(JOB),
        str(folder),
        *kinds,
    ]
    source = Path(rm.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same loop on one process, with a frozen layer and with all layers trained, and on two in every wrapper."""
    folder = tmp_path_factory.mktemp("runs")
    start(folder, "single", "single-flat")
    start(folder, "ddp", "fsdp1", "fsdp1-flat", "fsdp2", "ddp-statistics", "refusals")
    return folder


@pytest.mark.parametrize(
    ("kind", "other"),
    [("ddp", "single"), ("fsdp1", "single"), ("fsdp1-flat", "single-flat"), ("fsdp2", "single")],
)
def test_two_processes_record_what_one_does(kind: str, other: str, runs: Path) -> None:
    found, expected = (read_trace(open_folder(runs / name)) for name in (kind, other))
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.steps.tolist() == expected.steps.tolist()
    for name in NAMES:
        assert np.abs(getattr(found, name) - getattr(expected, name)).max() <= 1e-6, name
    weights = [load_file(runs / name / "weights.safetensors") for name in (kind, other)]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        assert torch.allclose(tensor, weights[1][name], atol=1e-6), name
    assert not (runs / kind / "rows").exists()


def test_all_processes_record_with_the_buffers_of_the_first(runs: Path) -> None:
    """The job itself has compared the last row with the weights that it saved."""
    assert read_trace(open_folder(runs / "ddp-statistics")).mechanism.couples_examples


def test_what_cannot_be_recorded_is_refused_with_the_reason(runs: Path) -> None:
    sentences = (runs / "refusals").read_text().splitlines()
    expected = (
        "must be recorded with `task`",
        "use_orig_params=True",
        "it builds another one",
        "need a plain module",
    )
    assert len(sentences) == len(expected)
    for sentence, words in zip(sentences, expected, strict=True):
        assert words in sentence


def test_a_parameter_of_deepspeed_is_refused() -> None:
    model = torch.nn.Linear(2, 2)
    model.weight.ds_id = 0  # type: ignore[assignment]
    examples = rm.Examples(np.arange(2), torch.zeros(2, 2), torch.tensor([0, 1]), ("a", "b"))
    mechanism = rm.Mechanism(sigma=0.1, sampling_rate=0.5, steps=2, batch_size=1)
    with pytest.raises(rm.InputError, match="DeepSpeed ZeRO-3"):
        rm.Recorder(model, examples, total_steps=2, mechanism=mechanism)


def test_sums_are_sent_in_buckets_of_one_type() -> None:
    small, large = torch.zeros(10), torch.zeros(7_000_000)
    double = torch.zeros(3, dtype=torch.float64)
    assert [len(bucket) for bucket in _buckets([small, small, double, large, small])] == [2, 1, 1, 1]
    assert Ranks().gather(np.ones(2, np.float32), np.arange(2), 2).tolist() == [1, 1]
