"""The example of the documentation, as a user would run it: from Python, and on from the command line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import remanence as rm
from remanence.cli.exit_codes import ExitCode

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_model.py"


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60, (
        "imports, model, training and request; a user reads it at once"
    )


@pytest.mark.own_model
@pytest.mark.timeout(900)  # two calibrations
def test_the_example_ends_with_verified_evidence(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    environment = dict(os.environ) | {"PYTHONPATH": str(EXAMPLE.parents[1] / "src")}

    def run(*command: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    printed = run("own_model.py")
    checks = printed.splitlines()[-1].split()
    assert checks[0] == "Evidence:"
    assert checks[1] == checks[3], "all checks hold"

    # the same model from the command line, as if it had been trained last month
    save = "import torch, own_model as m; model = m.task.new_model(0); m.fit(model, m.train_set, seed=0)"
    run("-c", f"{save}; torch.save(model.state_dict(), 'model.pt')")
    command = ("-m", "remanence")
    run(*command, "import", "--task", "own_model:task", "--weights", "model.pt", "--out", "imported")
    run(*command, "score", "imported", "--out", "scores.csv")
    small = ("--models", "20", "--sets", "20", "--workers", "2")
    run(*command, "calibrate", "imported", *small)
    (tmp_path / "request.csv").write_text("id\n17\n42\n99\n")
    plan = json.loads(run(*command, "plan", "imported", "--ids", "request.csv", "--json"))
    assert plan["size"] == 3
    run(*command, "forget", "imported", "--ids", "request.csv", "--out", "new", code=ExitCode.NOT_JUDGED)
    verified = json.loads(run(*command, "verify", "new/evidence.json", "--json"))
    assert verified["holds"]
    assert verified["outcome"] == "carried out, not judged", "three examples are too few for a verdict"
    run(*command, "select", "imported", "--how", "hardest", "--size", "30", "--out", "hard.json")
    retrain = ("--method", "retrain", "--seed", "1", "--out", "oracle")
    run(*command, "unlearn", "imported", "--forget", "hard.json", *retrain)
    audit = run(*command, "audit", "imported", "--forget", "hard.json", "--oracles", "oracle", "--json")
    assert json.loads(audit)
    run(*command, "barrier", "imported", "oracle", "--points", "5")
    run(*command, "purge", "new")


@pytest.mark.own_model
def test_several_labels_per_example_from_training_to_evidence(tmp_path: Path) -> None:
    """A task of this process: calibration, plan, forget and audit run in it."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(400, 10, generator=random)
    y = (x[:, :4] + 0.5 * torch.randn(400, 4, generator=random) > 0).float()
    train, test = TensorDataset(x[:300], y[:300]), TensorDataset(x[300:], y[300:])
    recipe = rm.Recipe(epochs=4, learning_rate=0.1, batch_size=32, weight_decay=1e-3)

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))

    task = rm.Task(build, train, test, recipe, loss="binary_cross_entropy")
    run = rm.train_run(task, tmp_path / "run")
    run.calibrate(models=20, sets=20, budget=20)
    ids = list(range(30))
    assert 0 <= run.plan(ids).expected.mia <= 1
    result = run.forget(ids, out=tmp_path / "new")
    oracle = run.unlearn(ids, "retrain", out=tmp_path / "oracle", seed=3)
    values = {
        finding.metric.name: finding.value for finding in result.run.audit(ids, oracles=[oracle]).findings
    }
    assert {"ua", "mia", "mia_confidence", "rmia", "relearn_retain"} <= values.keys()
    assert "mia_entropy" not in values
    assert all(check.holds for check in rm.verify_evidence(tmp_path / "new" / "evidence.json"))
