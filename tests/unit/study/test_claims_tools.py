"""The scripts that run the paper's studies and show that criteria came first."""

import importlib.util
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from remanence.stages import Store
from remanence.study.catalog import load_study, shipped
from remanence.study.criterion_order import CriterionOrder
from remanence.study.running import plan

TOOLS = Path(__file__).parents[3] / "tools"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_studies_but_the_demo_are_run() -> None:
    assert set(tool("run_claims").STUDIES) == {path.stem for path in shipped()} - {"demo"}


@pytest.mark.parametrize(("minutes", "words"), [(1, "is before the first"), (-1, "is NOT BEFORE the first")])
def test_a_line_says_which_came_first(minutes: int, words: str) -> None:
    order = CriterionOrder("x", "a" * 40, NOON, ("b" * 40,), NOON + timedelta(minutes=minutes))
    line = tool("check_criteria").line(order)
    assert words in line
    assert f"criterion {'a' * 12} of" in line
    assert line.endswith(f"by {'b' * 12}")


def test_a_store_without_deciding_runs_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check_criteria.py", "proxies", "--preset", "smoke", "--store", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    assert tool("check_criteria").main() == 0
    assert capsys.readouterr().out == "proxies: no deciding seed has been run\n"


def test_an_interrupted_study_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first stage is there; only the others are computed, and the verdicts are logged."""
    settings = ["seeds=1", "train.epochs=1", "train.record=1"]
    planned = plan(load_study("proxies", "smoke", settings))
    store = Store(tmp_path / "store")
    store.claim()
    run = tool("run_claims")
    run.run_planned(planned, store)
    first = capsys.readouterr().out
    assert "proxies: 4 stages computed" in first
    assert "proxies: undecided: All proxies correlate strongly" in first
    run.run_planned(planned, store)
    assert "proxies: 0 stages computed in 0 s, 4 reused" in capsys.readouterr().out
