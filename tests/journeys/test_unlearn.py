"""Unlearning as a person runs it: processes of its own, killed and resumed, chained, refused."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remanence
from remanence.cli.main import run as in_process
from remanence.data import digits
from remanence.experiments import tuning as tuning_room
from remanence.forgetting import write_forget_sets
from remanence.stages import Store, Tally
from remanence.storage import open_folder
from remanence.training import open_run
from remanence.types import ForgetSet

SOURCE = str(Path(remanence.__file__).parents[1])
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": SOURCE}
IDS = digits()[0].ids


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "remanence", *map(str, arguments)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run (GroupNorm, so that two processes train as one), an unlearned run, and some forget sets."""
    home = tmp_path_factory.mktemp("unlearn")
    task = ["--data", "digits", "--model", "small_conv", "--width", "4", "--epochs", "2", "--record", "0"]
    assert (
        in_process(
            ["train", *task, "--poison", str(sets(home, "poison", IDS[:5])), "--out", str(home / "run")]
        )
        == 0
    )
    sets(home, "some", IDS[:40])
    sets(home, "others", IDS[40:60])
    done = unlearn(home, home / "quiet")
    assert done == 0
    return home


def sets(home: Path, name: str, ids: object) -> Path:
    [file] = write_forget_sets(home / f"{name}.json", [ForgetSet(name, ids)])  # type: ignore[arg-type]
    return file


TASK = {"--method": "l1_sparse", "--epochs": 2, "--lr": 0.02, "--every": 10, "--checkpoint-every": 5}


def task(
    home: Path,
    out: Path,
    *flags: str,
    forget: str = "some",
    start: str = "run",
    given: dict[str, object] = TASK,
) -> list[str]:
    where = ["unlearn", home / start, "--forget", home / f"{forget}.json", "--out", out]
    return [*map(str, [*where, *(word for pair in given.items() for word in pair)]), *flags]


def unlearn(home: Path, out: Path, *words: object, forget: str = "some", start: str = "run") -> int:
    """With a method (or a choice) of one's own, or else the usual task."""
    own = {"--method", "--tuned"} & set(words)
    return in_process(
        task(home, out, *map(str, words), forget=forget, start=start, given={} if own else TASK)
    )


def test_an_unlearned_run_is_a_run(home: Path) -> None:
    made, parent = open_run(home / "quiet"), open_run(home / "run")
    assert made.settings == parent.settings
    assert made.forgotten.tolist() == IDS[:40].tolist()
    assert made.unlearning["parent"] == parent.folder.digest()
    assert made.unlearning["method"] == "l1_sparse"
    assert made.unlearning["options"]["coefficient"] == 5e-4
    assert (made.unlearning["recipe"]["learning_rate"], made.unlearning["steps"]) == (0.02, 40)
    rows = made.folder.rows("measurements")
    assert [row["step"] for row in rows if row["metric"] == "ua"] == [0, 10, 20, 30, 40]
    assert {row["metric"] for row in rows} == {"ua", "ra", "test", "mia_confidence"}
    assert sorted(path.name for path in (home / "quiet").iterdir() if not path.name.startswith(".")) == [
        "config.toml",
        "measurements.jsonl",
        "poison.safetensors",
        "remanence.json",
        "weights.safetensors",
    ]
    np.testing.assert_array_equal(made.poison.noise, parent.poison.noise)  # type: ignore[union-attr]


@pytest.mark.journey
def test_killed_and_resumed_it_ends_with_the_same_bits(
    home: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    out, rng = tmp_path / "noisy", random.Random(2)
    for _ in range(3):
        checkpoints = set((out / "checkpoints").glob("step-*"))
        with subprocess.Popen(
            command(*task(home, out, "--resume")),
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as started:
            wait_until(lambda old=checkpoints: set((out / "checkpoints").glob("step-*")) - old, started)
            time.sleep(rng.uniform(0, 0.03))
            started.kill()
        assert not (out / "remanence.json").exists(), "the kill must meet unfinished work"
    assert in_process(task(home, out, "--resume")) == 0
    assert open_folder(out).digest() == open_folder(home / "quiet").digest()


def test_stopped_in_the_middle_it_goes_on(home: Path, tmp_path: Path) -> None:
    """Killed for certain after a checkpoint, whatever the machine's speed."""
    with subprocess.Popen(
        command(*task(home, tmp_path / "noisy", given=TASK | {"--checkpoint-every": 1})),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as started:
        deadline = time.time() + 120
        while not list((tmp_path / "noisy" / "checkpoints").glob("step-*")) and time.time() < deadline:
            assert started.poll() is None
            time.sleep(0.01)
        os.kill(started.pid, signal.SIGKILL)
    assert not (tmp_path / "noisy" / "remanence.json").exists()
    assert unlearn(home, tmp_path / "noisy") == 2
    assert unlearn(home, tmp_path / "noisy", "--resume") == 0
    assert open_folder(tmp_path / "noisy").digest() == open_folder(home / "quiet").digest()


def test_two_processes_unlearn_as_one(home: Path, tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, "-m", "remanence", *task(home, tmp_path / "two", "--json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 40
    two, one = open_folder(tmp_path / "two"), open_folder(home / "quiet")
    for name, array in one.tensors("weights").items():
        np.testing.assert_allclose(two.tensors("weights")[name], array, rtol=1e-5, atol=1e-5)


def test_forgetting_adds_up_and_nothing_is_forgotten_twice(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        unlearn(
            home, tmp_path / "both", "--method", "finetune", "--steps", "3", forget="others", start="quiet"
        )
        == 0
    )
    assert open_run(tmp_path / "both").forgotten.tolist() == IDS[:60].tolist()
    assert "Unlearned with finetune in 3 steps" in capsys.readouterr().out
    assert unlearn(home, tmp_path / "again", start="quiet") == 2
    assert "40 of its 40 were already unlearned from" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_retraining_makes_the_oracle_that_train_makes(home: Path, tmp_path: Path) -> None:
    assert unlearn(home, tmp_path / "one", "--method", "retrain", "--option", "epochs=1", "--seed", "7") == 0
    oracle = open_run(tmp_path / "one")
    assert not oracle.was_trained_on(IDS[:40]).any()
    train = ["--data", "digits", "--model", "small_conv", "--width", "4", "--epochs", "1", "--record", "0"]
    assert (
        in_process(
            [
                "train",
                *train,
                "--seed",
                "7",
                "--without",
                str(home / "some.json"),
                "--out",
                str(tmp_path / "two"),
            ]
        )
        == 0
    )
    weights = [open_folder(tmp_path / name).files()["weights.safetensors"] for name in ("one", "two")]
    assert weights[0] == weights[1]


def test_more_steps_than_usual_are_taken_when_asked(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "long"
    assert (
        unlearn(
            home,
            out,
            "--method",
            "gradient_ascent",
            "--lr",
            "1e-6",
            "--steps",
            "9",
            "--metrics",
            "ua",
            "--sample",
            "50",
        )
        == 0
    )
    made = open_run(out)
    assert made.unlearning["steps"] == 9
    assert made.folder.rows("measurements")[-1]["step"] == 9


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--method", "fine_tune"], 2, "Did you mean 'finetune'?"),
        (["--method", "l1_sparse", "--option", "coefficent=1"], 2, "Did you mean 'coefficient'?"),
        (["--method", "finetune", "--option", "lr"], 2, "must have the form name=value; got 'lr'"),
        (["--method", "finetune", "--metrics", "mai"], 2, "Did you mean 'mia'?"),
        (["--method", "finetune", "--metrics", "klom"], 2, "`klom` needs oracles"),
        (["--method", "finetune", "--steps", "0"], 2, "--steps must be at least 1; got 0."),
        (["--method", "finetune", "--epochs", "1", "--steps", "99"], 2, "at most those of 1 epochs"),
        (["--method", "retrain", "--steps", "9"], 2, "cannot be given with retrain"),
        (["--method", "finetune", "--tuned", "missing.json"], 2, "missing.json is not a file"),
        (["--method", "finetune", "--lr", "1e30", "--epochs", "1"], 1, "The loss became"),
    ],
)
def test_wrong_input_is_one_sentence(
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    sentence: str,
) -> None:
    assert unlearn(home, tmp_path / "out", *arguments) == code
    told = capsys.readouterr().err
    assert sentence in told
    assert told.strip().count("\n") == 0
    assert (tmp_path / "out").exists() == (code == 1)


@pytest.mark.parametrize(
    ("name", "ids", "sentence"),
    [
        ("everything", IDS, "must leave examples to retain"),
        ("strangers", np.array([10**6]), "1 of 1 ids are not in this data set; the first is 1000000"),
    ],
)
def test_forget_sets_that_cannot_be(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, ids: object, sentence: str
) -> None:
    sets(home, name, ids)
    assert unlearn(home, tmp_path / "out", forget=name) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_gus_is_followed_where_there_is_poison(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--method", "finetune", "--steps", "2", "--metrics", "gus"]
    assert unlearn(home, tmp_path / "out", *asked) == 0
    rows = open_folder(tmp_path / "out").rows("measurements")
    assert [row["metric"] for row in rows] == ["gus"] * len(rows)
    assert len(rows) >= 2
    assert unlearn(home, tmp_path / "no", *asked, forget="others") == 2
    assert "needs a run whose forget set was poisoned" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_an_empty_forget_set_and_no_method(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((home / "some.json").read_text()) | {"ids": []}
    (home / "nobody.json").write_text(json.dumps(document))
    assert unlearn(home, tmp_path / "out", forget="nobody") == 2
    assert "must list ids" in capsys.readouterr().err
    nothing = [
        "unlearn",
        str(home / "run"),
        "--forget",
        str(home / "some.json"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert in_process(nothing) == 2
    assert (
        "Expected --method, or --tuned with a choice of `remanence tune`; got neither."
        in capsys.readouterr().err
    )


def test_an_occupied_folder_is_left_alone(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert unlearn(home, tmp_path) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    before = open_folder(home / "quiet").digest()
    assert unlearn(home, home / "quiet") == 2
    assert "holds a finished run" in capsys.readouterr().err
    assert in_process(task(home, home / "quiet", "--resume", given=TASK | {"--lr": 0.5})) == 2
    assert "learning_rate = 0.02; now it is 0.5" in capsys.readouterr().err
    assert open_folder(home / "quiet").digest() == before


@pytest.mark.journey
def test_tuning_is_resumed_after_a_kill_and_its_choice_is_used(
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
) -> None:
    tuning = [
        "tune",
        home / "run",
        "--method",
        "l1_sparse",
        "--epochs",
        "1",
        "--trials",
        "4",
        "--oracles",
        "1",
    ]
    tuning += ["--range", "lr=1e-3:0.1", "--sample", "100", "--resume", "--out"]
    with subprocess.Popen(
        command(*tuning, tmp_path / "noisy"),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as started:
        attempts = Store(tmp_path / "noisy" / "stages")
        wait_until(lambda: len(attempts.artifacts()) >= 2, started)  # the oracle, and a trial
        os.kill(started.pid, signal.SIGKILL)
    assert not (tmp_path / "noisy" / "choice.json").exists()
    finished = len(attempts.artifacts())
    assert 2 <= finished < 5, "the kill must meet unfinished work"
    computed: list[int] = []
    run_stages = tuning_room.run_stages

    def counted(*arguments: Any, **options: Any) -> Tally:
        tally = run_stages(*arguments, **options)
        computed.append(tally.computed)
        return tally

    monkeypatch.setattr(tuning_room, "run_stages", counted)
    more = [*tuning, tmp_path / "noisy", "--workers", "2", "--json"]  # it may go on with more processes
    assert in_process(list(map(str, more))) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["trials"]) == 4
    assert computed == [0] * finished + [1] * (5 - finished), (
        "one at a time, as it began, and only what is missing"
    )
    assert not attempts.root.exists(), "no longer needed"
    assert in_process(list(map(str, [*tuning, tmp_path / "quiet", "--json"]))) == 0
    undisturbed = json.loads(capsys.readouterr().out)
    assert (document["choice"], document["trials"]) == (undisturbed["choice"], undisturbed["trials"])
    assert all(1e-3 <= trial["options"]["learning_rate"] <= 0.1 for trial in document["trials"])
    assert (tmp_path / "noisy" / "trials.svg").read_text().count("<svg") == 1
    shutil.rmtree(tmp_path / "noisy" / "oracles")  # done: they are no longer needed
    choice = tmp_path / "noisy" / "choice.json"
    assert unlearn(home, tmp_path / "out", "--tuned", choice, "--steps", "2") == 0
    made = open_run(tmp_path / "out")
    assert made.unlearning["recipe"]["learning_rate"] == document["choice"]["options"]["learning_rate"]
    assert made.unlearning["options"]["coefficient"] == document["choice"]["options"]["coefficient"]
    capsys.readouterr()
    assert unlearn(home, tmp_path / "no", "--tuned", choice, "--method", "finetune") == 2
    assert "was tuned for l1_sparse" in capsys.readouterr().err
    assert in_process(list(map(str, [*tuning, tmp_path / "noisy"]))) == 0
    told = capsys.readouterr().out
    assert "Chosen: l1_sparse" in told
    assert (
        in_process(
            list(
                map(
                    str,
                    [
                        "tune",
                        home / "run",
                        "--method",
                        "finetune",
                        "--range",
                        "lr=1",
                        "--out",
                        tmp_path / "n",
                    ],
                )
            )
        )
        == 2
    )
    assert "must have the form name=lowest:highest" in capsys.readouterr().err
