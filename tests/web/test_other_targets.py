"""The dashboard over runs whose labels are numbers, and over runs whose task is not at hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import remanence as rm


def test_a_regression_on_a_table_is_shown(visit: Callable[..., Any], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [
        f"{i},{a:.3f},{b:.3f},u{i % 9},{2 * a - b:.3f}"
        for i, (a, b) in enumerate(random.normal(size=(90, 2)))
    ]
    (tmp_path / "t.csv").write_text("id,a,b,user,price\n" + "\n".join(rows))
    from remanence.cli.main import run

    options = ["--label-column", "price", "--user-column", "user", "--epochs", "2", "--record", "3"]
    code = run(["train", "--data", str(tmp_path / "t.csv"), *options, "--out", str(tmp_path / "run")])
    assert code == 0
    browser = visit([tmp_path / "run"])
    for address in ("/", "/runs/0", "/runs/0/examples", "/runs/0/examples/3", "/runs/0/plan"):
        assert browser.get(address, follow=True).status_code == 200, address


def test_a_run_whose_task_is_not_at_hand_says_so(visit: Callable[..., Any], tmp_path: Path) -> None:
    data = TensorDataset(torch.rand(40, 3), torch.arange(40) % 2)
    task = rm.Task(lambda: nn.Linear(3, 2), data, data, rm.Recipe(epochs=1, learning_rate=0.1))
    rm.import_run(task, nn.Linear(3, 2).state_dict(), out=tmp_path / "run")
    browser = visit([tmp_path / "run"])
    assert browser.get("/runs/0", follow=True).status_code == 200
    page = browser.get("/runs/0/examples", follow=True)
    assert page.status_code in (400, 404)
    assert "open it with its task" in page.text
