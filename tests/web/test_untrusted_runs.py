"""A run that names foreign code is shown, but its model is not built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from remanence.data import digits
from remanence.storage import open_folder, seal_in_place


def test_the_dashboard_executes_nothing(run: Path, visit: Callable[..., Any], tmp_path: Path) -> None:
    config = run / "config.toml"
    hostile = config.read_text().replace('model = "mlp"', 'model = "subprocess:getoutput"')
    hostile = hostile.replace("hidden = [\n    32,\n]", f'cmd = "touch {tmp_path / "executed"}"')
    assert "cmd = " in hostile
    config.write_text(hostile)
    seal_in_place(run, "training", open_folder(run).files())
    browser = visit([run])
    assert browser.get("/").status_code == 200
    assert browser.get("/runs/0").status_code == 200
    answer = browser.post("/runs/0/plan", ids="\n".join(map(str, digits()[0].ids[30:60])))
    page = browser.get(answer.headers["location"]) if answer.status_code == 303 else answer
    assert "is not trusted" in page.text
    assert not (tmp_path / "executed").exists()
