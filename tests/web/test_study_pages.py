"""Studies in the dashboard: stages, figures and verdicts of a store that is looked at and never changed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remanence.stages import Store, in_order
from remanence.storage.lock import exclusive
from remanence.study.catalog import load_study
from remanence.study.running import Planned, plan, run_planned

Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def own() -> Planned:
    """A finished study that does not come with the package, having other settings."""
    return plan(load_study("proxies", "smoke", ["train.epochs=1", "seeds=1"]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, own: Planned) -> Path:
    """That study, and the first stage of one that does."""
    made = Store(tmp_path_factory.mktemp("studies") / "store")
    run_planned([own], made)
    made.compute(in_order([plan(load_study("proxies", "smoke")).goal])[0])
    return made.root


def test_stages_that_are_there_and_missing(store: Path, visit: Visit) -> None:
    page = visit([], store=store).get("/studies").text
    assert "No study is running" in page
    assert "1 of 7 stages: train 1/2, score 0/2, base 0/2, figure 0/1" in page
    goal = plan(load_study("proxies", "smoke")).goal
    one = visit([], store=store).get(f"/studies/{goal.key}").text
    assert "Not finished: 1 of 7 stages" in one
    assert "remanence study run proxies --preset smoke" in one


def test_a_study_under_way_is_said_to_be(store: Path, visit: Visit) -> None:
    with exclusive(store / ".lock", "nobody else"):
        page = visit([], store=store).get("/studies/progress").text
    assert "is running in this store" in page
    assert "every 2s" in page


def test_stages_of_studies_that_cannot_be_told_are_counted(store: Path, visit: Visit, tmp_path: Path) -> None:
    empty = visit([], store=tmp_path).get("/studies").text
    assert "The store is empty" in empty
    [score] = store.glob("score-*")
    shutil.copytree(score, tmp_path / score.name)
    page = visit([], store=tmp_path).get("/studies").text
    assert "holds 1 stage of studies that are not known here" in page
    assert "empty" not in page


def test_figures_tables_and_verdicts(store: Path, own: Planned, visit: Visit) -> None:
    browser = visit([], store=store)
    assert own.goal.key in browser.get("/studies").text
    page = browser.get(f"/studies/{own.goal.key}").text
    folder = Store(store).get(own.goal)
    for verdict in folder.document("results")["verdicts"]:
        assert f">{verdict['agreement']}</span>" in page
    [name] = {Path(file).stem for file in folder.files() if file.endswith(".png")}
    picture = browser.get(f"/studies/{own.goal.key}/figures/{name}.png")
    assert picture.content == (folder.path / "figures" / f"{name}.png").read_bytes()


def test_nothing_of_the_store_changes(store: Path, own: Planned, visit: Visit) -> None:
    damaged = store / own.goal.key / "results.json"
    content = damaged.read_bytes()
    damaged.write_bytes(b"{}")
    browser = visit([], store=store)
    answer = browser.get(f"/studies/{own.goal.key}")
    assert answer.status_code == 404
    assert "damaged" in answer.text
    assert damaged.exists()
    damaged.write_bytes(content)
    assert browser.get(f"/studies/{own.goal.key}").status_code == 200


def test_other_addresses(store: Path, own: Planned, visit: Visit) -> None:
    browser = visit([], store=store)
    for address in (
        "/studies/nothing",
        "/studies/..%2f..",
        f"/studies/{own.goal.key}/figures/nothing.png",
        f"/studies/{own.goal.key}/figures/..%2f..%2fresults.png",
    ):
        assert browser.get(address).status_code == 404, address


def test_empty_states_say_what_to_run(tmp_path: Path, visit: Visit) -> None:
    assert "remanence study run" in visit([]).get("/studies").text
    assert visit([]).get("/studies/figure-1").status_code == 404
    page = visit([], store=tmp_path).get("/studies").text
    assert f"--store {tmp_path}" in page
