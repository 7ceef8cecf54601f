"""The tutorial: every shell and Python block runs, in order, in an empty folder, and what it says is so."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot

from remanence.cli.main import run

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_shell(block: str) -> None:
    """In this process, since loading torch anew for each command takes longer than the commands."""
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "remanence", line
        assert run(arguments) == 0, line


def test_the_tutorial_runs_and_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("agg")
    names: dict[str, Any] = {}
    ran = []
    for language, block in BLOCK.findall(TUTORIAL.read_text()):
        if language == "bash":
            run_shell(block)
        elif language == "python":
            exec(compile(block, "tutorial.md", "exec"), names)
        else:
            assert language == "console", "only the installation is not run"
            continue
        ran.append(language)
    pyplot.close("all")
    assert ran.count("bash") >= 6
    assert ran.count("python") >= 3
    assert {"hardest.png", "history.png", "audit.png", "scores.csv"} <= {
        each.name for each in tmp_path.iterdir()
    }
    found = {
        (name, each.metric.name): each
        for name in ("before", "tuned", "relabelled")
        for each in names[name].findings
    }
    assert found["before", "ua"].verdict == "below"
    assert found["tuned", "ua"].verdict == "below"
    assert found["relabelled", "ua"].value > found["tuned", "ua"].value + 0.1
    assert found["relabelled", "mia"].verdict == "above"
