"""A run folder is not code: an import path that comes from a folder is executed only if the user trusts the folder."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

import remanence as rm
from remanence.cli.main import run as command
from remanence.data import digits
from remanence.errors import InputError, RunFolderError
from remanence.experiments import UnlearnSettings, oracle_settings, unlearn_run
from remanence.models import mlp
from remanence.requests.remaining_artifacts import find_remaining_artifacts
from remanence.storage import open_folder, seal_in_place
from remanence.tasks import Task
from remanence.training import Recipe, RunReference, RunSettings, open_run, train_run
from remanence.training.trust import is_trusted, module_file, trusted_file
from remanence.types import ForgetSet

OURS = "remanence.models.simple:mlp"
"""A path that is imported like any other, and builds the model of the tests."""
IDS = digits()[0].ids
SOME = ForgetSet("some", IDS[100:130])
QUICK = Recipe(epochs=1, learning_rate=0.1)


def edit(run: Path, old: str, new: str) -> None:
    """Change the settings of a run and seal it again, as anybody can."""
    config = run / "config.toml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    seal_in_place(run, "training", open_folder(run).files())


@pytest.fixture
def received(carried_out: Path, tmp_path: Path) -> Path:
    """A calibrated run with a command in its settings, which would leave a file."""
    run = shutil.copytree(carried_out / "new", tmp_path / "received")
    edit(run, 'model = "mlp"', 'model = "subprocess:getoutput"')
    edit(run, "hidden = [\n    16,\n]", f'cmd = "touch {tmp_path / "executed"}"')
    shutil.copy(carried_out / "set.json", tmp_path)
    (tmp_path / "ids.csv").write_text("id\n" + "".join(f"{example}\n" for example in SOME.ids))
    return run


COMMANDS = {
    "plan": "plan {run} --ids {place}/ids.csv",
    "forget": "forget {run} --ids {place}/ids.csv --out {place}/out",
    "forget with an oracle": "forget {run} --ids {place}/ids.csv --out {place}/out --oracle",
    "audit": "audit {run} --forget {place}/set.json",
    "audit with shadows": "audit {run} --forget {place}/set.json --metrics u_lira --shadows 2",
    "barrier": "barrier {run} {run}",
    "unlearn": "unlearn {run} --forget {place}/set.json --method finetune --out {place}/out",
    "retrain": "unlearn {run} --forget {place}/set.json --method retrain --out {place}/out",
    "tune": "tune {run} --method finetune --trials 1 --oracles 1 --out {place}/out",
    "trust without confirmation": "trust {run}",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_received_folder_executes_nothing(
    name: str, received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = COMMANDS[name].format(run=received, place=tmp_path).split()
    assert command(arguments) == 2
    assert "trust" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_calibrating_a_received_folder_executes_nothing(
    received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(received / "calibration")
    assert command(["calibrate", str(received), "--workers", "1"]) == 2
    assert "is not trusted" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "executed").exists()


def test_reading_scores_needs_no_code(received: Path, tmp_path: Path) -> None:
    assert command(["score", str(received), "--out", str(tmp_path / "scores.csv")]) == 0
    assert rm.open_run(received).scores("privacy_loss").ids.shape == (1257,)


def test_a_trusted_folder_works_until_it_changes(
    carried_out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(carried_out / "run", tmp_path / "run")
    edit(run, 'model = "mlp"', f'model = "{OURS}"')
    with pytest.raises(RunFolderError, match=r"not trusted\. If you trust it"):
        open_run(run).model()
    assert command(["trust", str(run), "--yes", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["model"] == OURS
    assert json.loads(shown.out)["file"].endswith("simple.py")
    assert OURS in shown.err
    assert "simple.py" in shown.err
    open_run(run).model()
    assert RunReference(open_folder(run).digest(), str(run)).open().model()
    made = unlearn_run(open_run(run), SOME, UnlearnSettings("finetune", steps=1), tmp_path / "made")
    made.model()  # what the user makes from a trusted run is trusted
    edit(run, "hidden", "extra = 1\nhidden")
    with pytest.raises(RunFolderError, match="not trusted"):
        open_run(run).model()
    assert stat.S_IMODE(trusted_file().stat().st_mode) == 0o600


def test_a_folder_that_moves_is_no_longer_trusted(tmp_path: Path) -> None:
    train_run(RunSettings("digits", OURS, QUICK, record=0), tmp_path / "run")
    open_run(tmp_path / "run").model()  # trained here
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    assert not is_trusted(open_folder(tmp_path / "elsewhere"))


def test_python_brings_the_code(received: Path, tmp_path: Path) -> None:
    train, test = digits()
    task = Task(lambda: mlp(in_features=64, num_classes=10, hidden=(16,)), train, test, QUICK)
    run = rm.open_run(received, task=task)
    assert run.plan(SOME).members
    made = run.unlearn(SOME, "finetune", out=tmp_path / "made", steps=1)
    made.model()
    run.unlearn(SOME, "retrain", out=tmp_path / "oracle", options={"epochs": 1}).model()
    for path in (tmp_path / "made", tmp_path / "oracle"):
        assert not is_trusted(open_folder(path))
    with pytest.raises(RunFolderError, match="not trusted"):
        rm.open_run(received).model()
    with pytest.raises(RunFolderError, match="not trusted"):
        oracle_settings(open_run(received), SOME, seed=0)
    assert not (tmp_path / "executed").exists()


def test_a_damaged_list_trusts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_run(RunSettings("digits", OURS, QUICK, record=0), tmp_path / "run")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert not is_trusted(open_folder(tmp_path / "run"))
    trusted_file().parent.mkdir()
    trusted_file().write_text("[]")
    with pytest.raises(InputError, match="is damaged"):
        open_run(tmp_path / "run").model()


def test_the_file_of_a_module_is_found_without_executing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    for name in ("__init__.py", "inner.py"):
        (tmp_path / "package" / name).write_text("raise SystemExit")
    assert module_file("package.inner:build") == str(tmp_path / "package" / "inner.py")
    assert module_file("no_such_package.inner:build") is None


def test_a_folder_without_foreign_code_needs_no_trust(
    carried_out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["trust", str(carried_out / "run")]) == 0
    assert "needs no trust" in capsys.readouterr().out


def test_a_run_of_a_task_given_in_python_is_trusted_like_a_recorded_one(
    carried_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trained_here.py").write_text(
        "import remanence as rm\nfrom torch import nn\nfrom remanence.data import digits\n"
        "def build(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
        "task = rm.Task(build, *digits(), rm.Recipe(epochs=1, learning_rate=0.1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    task = __import__("trained_here").task
    rm.train_run(task, tmp_path / "run")
    assert open_run(tmp_path / "run").task.import_path == "trained_here:task"

    copy = shutil.copytree(tmp_path / "run", tmp_path / "copy")
    rm.train_run(task, copy, resume=True)
    assert not is_trusted(open_folder(copy)), "a finished run that was not made here stays untrusted"

    shutil.rmtree(tmp_path / "run")
    request = open_run(carried_out / "new")
    (listed,) = find_remaining_artifacts(request, set(), IDS[:3], [tmp_path], skip=carried_out)
    assert listed.path == copy, "a folder beside the run that is not trusted does not stop a request"
    assert "data cannot be read" in listed.description


def test_purging_a_folder_that_is_not_there_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["purge", str(tmp_path / "none"), "--erase", str(tmp_path / "old"), "--yes"]) == 2
    assert "is not a folder made by Remanence" in capsys.readouterr().err
