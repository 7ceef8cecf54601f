"""Looking changes nothing; cleaning removes what nothing will ask for again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remanence.errors import RunFolderError
from remanence.stages import Read, Stage, Store, in_order
from remanence.storage import Draft
from remanence.study.catalog import load_study, shipped
from remanence.study.figure_stage import FigureStage
from remanence.study.forget_stages import Score
from remanence.study.outdated_artifacts import KINDS, outdated
from remanence.study.running import plan
from remanence.study.store_cleaning import clean
from remanence.study.train_stages import Train


@dataclass(frozen=True, eq=False, kw_only=True)
class Nothing(Stage):
    """A stage of any kind and version that computes nothing."""

    kind = "add"

    params_: dict[str, Any]
    needed: tuple[Stage, ...] = ()

    @property
    def params(self) -> dict[str, Any]:  # type: ignore[override]
        return self.params_

    def compute(self, draft: Draft, read: Read) -> None:
        draft.document("value", {})


def nothing(
    stage: type[Stage] = Nothing, older_by: int = 0, needed: tuple[Stage, ...] = (), **params: Any
) -> Stage:
    """An empty stage of the same kind as another, made by code of the same version or an older one."""
    body = {"kind": stage.kind, "version": stage.version - older_by}
    return type("Empty", (Nothing,), body)(params_=params, needed=needed)


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_looking_at_a_damaged_artifact_leaves_it(tmp_path: Path) -> None:
    store, stage = Store(tmp_path), nothing()
    store.compute(stage)
    (store.path(stage) / "value.json").write_text("{ }")
    before = snapshot(tmp_path)
    assert not store.holds(stage)
    assert store.survey([stage]) == ([], [stage])
    assert snapshot(tmp_path) == before


def test_every_kind_of_stage_has_its_version_here() -> None:
    kinds = {
        stage.kind: type(stage)
        for path in shipped()
        for stage in in_order([plan(load_study(path.stem, "smoke")).goal])
    }
    assert kinds.items() <= KINDS.items()


def test_what_older_code_made_is_told_and_can_go(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.claim()
    now, old = nothing(Train, seed=0), nothing(Train, older_by=1, seed=0)
    made_from_old = nothing(Score, needed=(old,))
    foreign = nothing()
    for stage in (now, old, made_from_old, foreign):
        store.compute(stage)
    gone = sorted([store.path(old), store.path(made_from_old)])
    assert outdated(store) == gone
    before = snapshot(store.root)
    assert sorted(clean(store, [], [], really=False)) == gone
    assert snapshot(store.root) == before, "not even a lock"
    assert sorted(clean(store, [], [], really=True)) == gone
    assert outdated(store) == []
    assert store.holds(now)
    assert store.holds(foreign)


@pytest.mark.parametrize(("raised", "old"), [(0, False), (1, True)])
def test_a_figure_has_a_version_of_its_own(raised: int, old: bool, tmp_path: Path) -> None:
    store, goal = Store(tmp_path), plan(load_study("proxies", "smoke")).goal
    store.compute(nothing(FigureStage, figure="proxies", figure_version=goal.figure_version - raised))
    assert bool(outdated(store)) is old


def test_cleaning_a_store_that_is_not_there_makes_none(tmp_path: Path) -> None:
    assert clean(Store(tmp_path / "store"), [], [], really=False) == []
    assert clean(Store(tmp_path / "store"), [], [], really=True) == []
    assert not (tmp_path / "store").exists()
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunFolderError, match="not a store"):
        clean(Store(tmp_path), [], [], really=False)
