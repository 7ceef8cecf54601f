"""Ctrl-C in every long command prints a command, and that command really goes on to the end."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from remanence.cli.main import run as command
from remanence.data import digits
from remanence.storage import SEAL
from remanence.training import Recipe, RunSettings, open_run, train_run

pytestmark = pytest.mark.journey

IDS = digits()[0].ids
QUICK = Recipe(epochs=2, learning_rate=0.2, batch_size=64, weight_decay=1e-3)
CALIBRATION = ["--method", "finetune", "--models", "20", "--sets", "20", "--budget", "4", "--workers", "1"]
Interrupt = Callable[..., list[str]]


def make_run(out: Path) -> Path:
    train_run(RunSettings("digits", "mlp", QUICK, record=2, model_options={"hidden": [8]}), out)
    return out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("interrupted") / "run")


@pytest.fixture(scope="module")
def calibrated(trained: Path) -> Path:
    out = trained.with_name("calibrated")
    shutil.copytree(trained, out)
    assert command(["calibrate", str(out), *CALIBRATION]) == 0
    return out


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    (tmp_path / "ids.csv").write_text("id\n" + "".join(f"{example}\n" for example in IDS[100:140]))
    return tmp_path / "ids.csv"


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Interrupt:
    def press(arguments: list[str], module: str, function: str, *, after: int = 0) -> list[str]:
        """Run a command; Ctrl-C comes when a function is called for the next time. Gives the printed command."""
        real, calls = getattr(import_module(module), function), []

        def interrupted(*given: object, **named: object) -> object:
            if len(calls) >= after:
                raise KeyboardInterrupt
            calls.append(given)
            return real(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(import_module(module), function, interrupted)
            capsys.readouterr()
            assert command(arguments) == 130
        message = capsys.readouterr().err
        assert "Interrupted." in message
        line = next(line for line in message.splitlines() if "Interrupted." in line)
        words = shlex.split(line.partition(": remanence ")[2])
        assert words, line
        return words

    return press


def test_train(interrupt: Interrupt, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = [
        "train",
        "--data",
        "digits",
        "--model",
        "mlp",
        "--epochs",
        "2",
        "--record",
        "0",
        "--out",
        str(out),
    ]
    again = interrupt(arguments, "remanence.training.train_run", "train_and_record")
    assert command(again) == 0
    assert (out / SEAL).exists()


def test_unlearn(interrupt: Interrupt, trained: Path, asked: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    arguments = ["unlearn", str(trained), "--forget", str(asked), "--method", "finetune", "--steps", "4"]
    again = interrupt([*arguments, "--out", str(out)], "remanence.experiments.unlearn", "write_unlearned")
    assert command(again) == 0
    assert (out / SEAL).exists()


def test_tune(interrupt: Interrupt, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuning"
    arguments = [
        "tune",
        str(trained),
        "--method",
        "finetune",
        "--trials",
        "2",
        "--oracles",
        "1",
        "--epochs",
        "1",
    ]
    again = interrupt(
        [*arguments, "--size", "20", "--out", str(out)], "remanence.experiments.tuning", "run_stages", after=1
    )
    assert command(again) == 0
    assert (out / "choice.json").exists()


def test_calibrate(interrupt: Interrupt, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    again = interrupt(["calibrate", str(run), *CALIBRATION], "remanence.requests.calibrating", "fold_targets")
    assert command(again) == 0
    assert (run / "calibration" / SEAL).exists()


@pytest.mark.parametrize(
    "further", [[], ["--method", "retrain"], ["--resume"], ["--budget", "3"]], ids=" ".join
)
def test_forget(
    interrupt: Interrupt, calibrated: Path, asked: Path, tmp_path: Path, further: list[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "new"
    shutil.copytree(calibrated, run)
    arguments = ["forget", str(run), "--ids", str(asked), "--out", str(out), "--no-relearning", *further]
    again = interrupt(arguments, "remanence.requests.judged_request", "audit_request")
    assert command(again) in (0, 3, 4)
    assert open_run(out).forgotten.tolist() == IDS[100:140].tolist()


def test_purge(interrupt: Interrupt, calibrated: Path, asked: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "new"
    shutil.copytree(calibrated, run)
    told = ["forget", str(run), "--ids", str(asked), "--out", str(out), "--no-relearning"]
    assert command([*told, "--method", "retrain"]) == 0
    arguments = ["purge", str(out), "--erase", str(run), "--yes"]
    again = interrupt(arguments, "remanence.requests.purging", "_erase", after=2)
    assert command(again) == 0
    assert not (run / SEAL).exists()


def test_audit_with_shadow_models(interrupt: Interrupt, trained: Path, asked: Path, tmp_path: Path) -> None:
    arguments = ["audit", str(trained), "--forget", str(asked), "--metrics", "u_lira", "--shadows", "8"]
    arguments += ["--cache", str(tmp_path / "cache"), "--no-relearning", "--workers", "1"]
    again = interrupt(arguments, "remanence.experiments.shadow_training", "run_stages")
    assert command(again) == 0


def test_barrier(interrupt: Interrupt, trained: Path, tmp_path: Path) -> None:
    other, out = make_run(tmp_path / "other"), tmp_path / "barriers"
    arguments = ["barrier", str(trained), str(other), "--points", "3", "--out", str(out)]
    again = interrupt(arguments, "remanence.report", "write_barriers")
    assert command(again) == 0
    assert (out / "barriers.json").exists()


def test_study(interrupt: Interrupt, tmp_path: Path) -> None:
    changes = ["seeds=1", "train.epochs=1", "train.record=1", "train.placement=even", "model.width=4"]
    changes += ["unlearn.epochs=1", "tune.learning_rates=[0.1]", "tune.epochs=1", "audit.oracles=1"]
    changes += ['audit.metrics=["ua", "mia_confidence"]', "forget.sizes=[0.05]"]
    arguments = ["study", "run", "time-to-unlearn", "--preset", "smoke", "--store", str(tmp_path / "store")]
    arguments += [*(word for change in changes for word in ("--set", change)), "--workers", "1"]
    again = interrupt(arguments, "remanence.study.running", "compute_stages")
    assert command(again) == 0
