"""The tutorial: every shell and Python block runs, in order, in an empty folder, and what it says is so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remanence.requests import read_evidence

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.timeout(600)
@pytest.mark.journey
def test_the_tutorial_runs_and_is_true(tmp_path: Path, page: Callable[..., Any]) -> None:
    tutorial = page(TUTORIAL, shorter=False)
    ran = tutorial.run()
    assert ran.count("bash") >= 10
    assert ran.count("python") >= 5
    assert len(tutorial.not_run()) == 4  # the installation, and the dashboard
    there = {each.name for each in tmp_path.iterdir()}
    assert {"hardest.png", "history.png", "audit.png", "scores.csv", "plan.html", "run2"} <= there
    found = {
        (name, each.metric.name): each
        for name in ("before", "tuned", "relabelled")
        for each in tutorial.names[name].findings
    }
    assert found["before", "ua"].verdict == "below"
    assert found["tuned", "ua"].verdict == "below"
    assert found["relabelled", "ua"].value > found["tuned", "ua"].value + 0.1
    assert found["before", "mia_confidence"].verdict == "below"
    assert found["before", "rmia"].value > found["relabelled", "rmia"].value + 0.2
    assert found["before", "mia"].verdict == "within"
    told = read_evidence(tmp_path / "run2" / "evidence.json")
    assert told["request"]["size"] == 40
    assert told["actual"]["reached"]
    assert all(check.holds for check in tutorial.names["evidence"])
