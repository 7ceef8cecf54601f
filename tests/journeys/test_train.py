"""Training as a person runs it: processes of its own, killed and resumed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from remanence.cli.main import run as in_this_process
from remanence.storage import open_folder, read_trace
from remanence.storage.compare import differences

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
MODEL = ["--data", "digits", "--model", "small_conv", "--width", "4", "--seed", "5", "--placement", "even"]
TASK = [*MODEL, "--epochs", "3", "--record", "6", "--checkpoint-every", "5"]
SHORT = [*MODEL, "--epochs", "1", "--record", "3", "--checkpoint-every", "1"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "remanence", *map(str, arguments)]


def train(*arguments: object) -> int:
    """In this process: loading torch takes longer than most of these runs."""
    return in_this_process(["train", *map(str, arguments)])


def launch(*arguments: object) -> list[str]:
    """The same on two processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*torchrun, "-m", "remanence", *map(str, arguments)]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as a person starts it, never disturbed."""
    out = tmp_path_factory.mktemp("train") / "quiet"
    done = subprocess.run(
        command("train", *TASK, "--out", out, "--json"),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["test_accuracy"] > 0.5
    return out


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on two processes, never disturbed."""
    out = tmp_path_factory.mktemp("train") / "two"
    done = subprocess.run(
        launch("train", *SHORT, "--out", out),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_a_run_holds_weights_trace_and_measurements(quiet: Path) -> None:
    folder = open_folder(quiet, "training")
    assert [row["step"] for row in folder.rows("measurements")] == [21, 42, 63]
    trace = read_trace(folder)
    assert trace.steps.tolist() == [0, 10, 21, 32, 42, 52, 63]
    assert trace.mechanism.assumed
    assert folder.config()["recipe"]["epochs"] == 3
    assert sorted(path.name for path in quiet.iterdir() if not path.name.startswith(".")) == [
        "config.toml",
        "measurements.jsonl",
        "remanence.json",
        "trace.json",
        "trace.safetensors",
        "weights.safetensors",
    ]


@pytest.mark.journey
def test_killed_and_resumed_it_ends_with_the_same_bits(
    quiet: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """Killed once as soon as it has begun, then after every further checkpoint."""
    out, rng = tmp_path / "noisy", random.Random(1)
    for begun in (False, True, True, True):
        checkpoints = set((out / "checkpoints").glob("step-*"))
        with subprocess.Popen(
            command("train", *TASK, "--out", out, "--resume"),
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as started:
            if not begun:
                wait_until((out / "unfinished.toml").exists, started)
            else:
                wait_until(lambda old=checkpoints: set((out / "checkpoints").glob("step-*")) - old, started)
            time.sleep(rng.uniform(0, 0.05))
            started.kill()
        assert (out / "unfinished.toml").exists(), "the kill must meet unfinished work"
        assert not (out / "remanence.json").exists()
    assert in_this_process(["train", *TASK, "--out", str(out), "--resume"]) == 0
    assert differences(quiet, out) == {}


def test_two_processes_train_as_one(two: Path, tmp_path: Path) -> None:
    assert train(*SHORT, "--out", tmp_path / "one") == 0
    alone, together = open_folder(tmp_path / "one"), open_folder(two)
    for name, array in alone.tensors("weights").items():
        np.testing.assert_allclose(together.tensors("weights")[name], array, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(read_trace(together).norms[0], read_trace(alone).norms[0], rtol=1e-6)


@pytest.mark.journey
def test_a_dead_rank_brings_the_job_down_and_resume_works(
    two: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    out = tmp_path / "noisy"
    task = launch("train", *SHORT, "--resume", "--out", out)
    with subprocess.Popen(task, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        wait_until(lambda: list((out / "checkpoints").glob("step-*")), job)
        ranks = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=True)
        os.kill(int(ranks.stdout.split()[-1]), signal.SIGKILL)
        assert job.wait(timeout=120) != 0
    assert not (out / "remanence.json").exists()
    done = subprocess.run(task, env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert differences(two, out) == {}


def test_a_trace_made_afterwards_is_the_recorders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = [*MODEL, "--epochs", "1", "--record", "3", "--checkpoint-every", "7", "--keep-checkpoints"]
    assert train(*task, "--out", tmp_path / "run") == 0
    capsys.readouterr()
    options = ["--data", "digits", "--model", "small_conv", "--option", "width=4", "--batch-size", "64"]
    made_of = ["--checkpoints", tmp_path / "run", "--out", tmp_path / "traced"]
    traced = ["import", *options, *made_of, "--json"]
    assert in_this_process([*map(str, traced)]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoints"] == [7, 14, 21]
    recorded, made = (read_trace(open_folder(tmp_path / name)) for name in ("run", "traced"))
    np.testing.assert_array_equal(made.norms, recorded.norms[1:])
    np.testing.assert_array_equal(made.error, recorded.error[1:])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "digit"], "Did you mean 'digits'"),
        (["--data", "digits", "--model", "resnet"], "Did you mean 'resnet18'"),
        (["--data", "digits", "--model", "no.such:thing"], "no.such"),
        (["--data", "digits", "--recipe", "papr"], "Did you mean 'paper'"),
        (["--data", "digits", "--model", "mlp", "--lr", "-1"], "--learning-rate must be"),
        (
            ["--data", "digits", "--model", "mlp", "--placement", "log", "--record", "100000"],
            "`checkpoints` must be",
        ),
    ],
)
def test_wrong_input_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_this_process(["train", *arguments, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.strip().count("\n") == 0


def test_a_diverged_run_keeps_its_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    task = ["--data", "digits", "--model", "mlp", "--epochs", "3", "--lr", "1e30", "--record", "0"]
    assert train(*task, "--checkpoint-every", "1", "--out", out) == 1
    assert "The loss became" in capsys.readouterr().err
    assert list((out / "checkpoints").iterdir())


def test_a_finished_or_foreign_folder_is_left_alone(
    quiet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = open_folder(quiet).digest()
    assert train(*TASK, "--out", quiet) == 2
    assert "holds a finished run" in capsys.readouterr().err
    assert train(*TASK, "--lr", "0.5", "--out", quiet, "--resume") == 2
    assert "recipe.learning_rate" in capsys.readouterr().err
    assert open_folder(quiet).digest() == before
    (tmp_path / "mine.txt").write_text("precious")
    assert train(*TASK, "--out", tmp_path) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
