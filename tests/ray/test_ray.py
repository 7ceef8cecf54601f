"""Stages on a local Ray cluster: the same bits as on processes. `make test-ray` installs Ray (257 MB) and runs this."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from remanence.errors import InputError
from remanence.stages import Read, Stage, Store, compute_stages, in_order, run_stages
from remanence.stages.executors import make_executor
from remanence.storage import Draft
from remanence.study.catalog import load_study
from remanence.study.running import plan

pytest.importorskip("ray", reason="Ray is not installed; `make test-ray` installs it.")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _code_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers are new interpreters; they must find this code and this file."""
    here = Path(__file__).parent
    paths = [str(here.parents[1] / "src"), str(here), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@dataclass(frozen=True, eq=False, kw_only=True)
class DiesOnce(Stage):
    kind = "mortal"

    mark: str

    def compute(self, draft: Draft, read: Read) -> None:
        mark = Path(self.mark)
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        draft.document("value", {"value": 1})


def test_a_study_has_the_same_bits_on_ray(tmp_path: Path, tiny: list[str]) -> None:
    goal = plan(load_study("time-to-unlearn", "smoke", tiny)).goal
    ours, theirs = Store(tmp_path / "process"), Store(tmp_path / "ray")
    run_stages([goal], ours, workers=2)
    tally = compute_stages([goal], theirs, make_executor("ray", theirs.root, workers=2))
    assert (tally.computed, tally.failures) == (len(in_order([goal])), ())
    for stage in in_order([goal]):
        assert theirs.get(stage).digest() == ours.get(stage).digest(), stage.key


def test_a_killed_ray_worker_is_tried_again(tmp_path: Path) -> None:
    stage = DiesOnce(mark=str(tmp_path / "mark"))
    store = Store(tmp_path / "store")
    tally = compute_stages([stage], store, make_executor("ray", store.root, workers=1))
    assert (tally.computed, tally.failures) == (1, ())
    assert store.get(stage).document("value")["value"] == 1


def test_an_address_where_nobody_is_takes_one_sentence(tmp_path: Path) -> None:
    stage = DiesOnce(mark=str(tmp_path / "mark"))
    executor = make_executor("ray", tmp_path, workers=1, address="127.0.0.1:9")
    with pytest.raises(InputError, match="cannot be reached") as caught:
        compute_stages([stage], Store(tmp_path), executor)
    assert "\n" not in str(caught.value)


class Rude(BaseException):
    """No `Exception`: the worker does not make an outcome of it, so the task itself ends with it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RudeStage(Stage):
    kind = "rude"

    def compute(self, draft: Draft, read: Read) -> None:
        raise Rude("go away")


def test_what_a_task_raises_is_its_failure_and_not_a_lost_worker(tmp_path: Path) -> None:
    stage = RudeStage()
    store = Store(tmp_path / "store")
    tally = compute_stages([stage], store, make_executor("ray", store.root, workers=1))
    assert [failure.message for failure in tally.failures] == ["Rude: go away"]


def test_a_cluster_that_is_up_is_not_joined_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    stage = DiesOnce(mark=str(tmp_path))
    store = Store(tmp_path / "store")
    assert compute_stages([stage], store, make_executor("ray", store.root, workers=1)).computed == 1
