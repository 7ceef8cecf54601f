"""Looking changes nothing; cleaning removes what nothing will ask for again."""

from dataclasses import replace
from pathlib import Path

import pytest

from remanence.errors import RunFolderError
from remanence.study import Stage, StageKind, Store
from remanence.study.catalog import load_study, shipped
from remanence.study.figure_stage import FIGURE
from remanence.study.outdated import KINDS, outdated
from remanence.study.running import plan
from remanence.study.stages import in_order
from remanence.study.stages_of_training import TRAIN
from remanence.study.tidying import clean

NOTHING = StageKind("train", 1, lambda draft, params, inputs: draft.document("value", {}))


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_looking_at_a_damaged_artifact_leaves_it(tmp_path: Path) -> None:
    store, stage = Store(tmp_path), Stage(NOTHING, {})
    store.compute(stage)
    (store.path(stage) / "value.json").write_text("{ }")
    before = snapshot(tmp_path)
    assert not store.holds(stage)
    assert store.survey([stage]) == ([], [stage])
    assert snapshot(tmp_path) == before


def test_every_kind_of_stage_has_its_version_here() -> None:
    kinds = {
        stage.kind.name: stage.kind
        for path in shipped()
        for stage in in_order([plan(load_study(path.stem, "smoke")).goal])
    }
    assert kinds.items() <= KINDS.items()


def older(kind: StageKind) -> StageKind:
    return replace(kind, version=kind.version - 1, compute=NOTHING.compute)


def test_what_older_code_made_is_told_and_can_go(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.claim()
    now = Stage(replace(TRAIN, compute=NOTHING.compute), {"seed": 0})
    old = Stage(older(TRAIN), {"seed": 0})
    made_from_old = Stage(replace(KINDS["score"], compute=NOTHING.compute), {}, (old,))
    foreign = Stage(replace(NOTHING, name="add"), {})
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
    params = {"figure": "proxies", "figure_version": goal.params["figure_version"] - raised}
    store.compute(Stage(replace(FIGURE, compute=NOTHING.compute), params))
    assert bool(outdated(store)) is old


def test_cleaning_a_store_that_is_not_there_makes_none(tmp_path: Path) -> None:
    assert clean(Store(tmp_path / "store"), [], [], really=False) == []
    assert clean(Store(tmp_path / "store"), [], [], really=True) == []
    assert not (tmp_path / "store").exists()
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunFolderError, match="not a store"):
        clean(Store(tmp_path), [], [], really=False)
