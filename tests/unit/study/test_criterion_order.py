"""The criterion of a study must be older than the runs that decide it."""

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from remanence.report.markdown import result_page
from remanence.stages import Store, in_order
from remanence.stages.source_commit import git, source_commit
from remanence.study.catalog import CATALOG, load_study
from remanence.study.criterion_order import CriterionOrder, criterion_order
from remanence.study.provenance import provenance_of
from remanence.study.running import Planned, plan
from remanence.study.train_stages import Train

COMMITTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
COMPUTED_BY = "c0ffee" * 6


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """A study in a git repository of its own."""
    folder = tmp_path / "studies of mine"
    folder.mkdir()
    for name in ("base", "proxies"):
        (folder / f"{name}.toml").write_text((CATALOG / f"{name}.toml").read_text())
    date = COMMITTED.isoformat()
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "the criterion", "--date", date]):
        names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
        dates = {"GIT_COMMITTER_EMAIL": "a@b", "GIT_COMMITTER_DATE": date}
        subprocess.run(["git", "-C", str(folder), *words], check=True, env=names | dates)
    return plan(load_study(str(folder / "proxies.toml"), "smoke", ["criterion=First come, first served."]))


def ledger(root: Path, planned: Planned, finished: datetime) -> Store:
    root.mkdir()
    runs = [stage for stage in in_order([planned.goal]) if isinstance(stage, Train)]
    entries = [
        {"key": run.key, "kind": "train", "seconds": 60.0, "finished": finished.isoformat(), "machine": "m"}
        for run in runs
    ]
    text = "\n".join(json.dumps(entry | {"commit": COMPUTED_BY}) for entry in entries)
    (root / "ledger.jsonl").write_text(text + "\n")
    return Store(root)


@pytest.mark.parametrize(("later", "holds"), [(3600, True), (59, False), (-5, False)])
def test_the_ledger_shows_which_came_first(later: int, holds: bool, planned: Planned, tmp_path: Path) -> None:
    order = criterion_order(
        planned, ledger(tmp_path / "store", planned, COMMITTED + timedelta(seconds=later))
    )
    assert order.committed == COMMITTED
    assert order.started == COMMITTED + timedelta(seconds=later - 60)
    assert order.computed_by == (COMPUTED_BY,)
    assert len(order.criterion) == 40
    assert order.holds == holds


def test_the_page_names_both_commits(planned: Planned, tmp_path: Path) -> None:
    store = ledger(tmp_path / "store", planned, COMMITTED + timedelta(hours=1))
    made = provenance_of(planned, store)
    page = result_page(planned.study, {"verdicts": [], "tables": {}}, made, "x", [])
    assert "First come, first served." in page
    assert f"Committed in `{made.order.criterion[:12]}`, 2026-01-02 03:04:05 UTC." in page
    assert (
        f"The deciding seeds 0 to 1 were trained from 2026-01-02 04:03:05 UTC on, by `{COMPUTED_BY[:12]}`."
        in page
    )


def test_nothing_holds_without_a_commit_or_a_run(planned: Planned, tmp_path: Path) -> None:
    order = criterion_order(planned, Store(tmp_path / "empty"))
    assert (order.started, order.holds) == (None, False)
    assert not CriterionOrder("x", "", None, (), COMMITTED).holds


def test_git_answers_or_is_silent(tmp_path: Path) -> None:
    assert git("rev-parse", "HEAD", folder=tmp_path) == ""
    assert source_commit() == "" or len(source_commit().partition("+")[0]) == 40
