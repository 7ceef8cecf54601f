"""Workers that are killed at a stage, and whole runs of stages that are killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from remanence.stages import Read, Stage, Store, compute_stages, in_order, run_stages
from remanence.stages.processes import Processes
from remanence.stages.worker import StageOutcome
from remanence.storage import Draft


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Stage):
    kind = "add"

    value: int
    terms: tuple[Stage, ...] = ()

    def compute(self, draft: Draft, read: Read) -> None:
        terms = [read(stage).document("value")["value"] for stage in self.terms]
        draft.document("value", {"value": self.value + sum(terms)})


@dataclass(frozen=True, eq=False, kw_only=True)
class SlowAdd(Add):
    kind = "slow"

    def compute(self, draft: Draft, read: Read) -> None:
        time.sleep(0.15)
        super().compute(draft, read)


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Deadly(Stage):
    kind = "deadly"

    def compute(self, draft: Draft, read: Read) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sleep(Stage):
    kind = "sleep"

    def compute(self, draft: Draft, read: Read) -> None:
        time.sleep(60)


def slow_graph() -> list[Stage]:
    first = [SlowAdd(value=i) for i in range(6)]
    return [*first, SlowAdd(value=100, terms=tuple(first))]


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    stage = DiesOnce(mark=str(tmp_path / "mark"))
    store = Store(tmp_path / "store")
    run_stages([stage], store, workers=1)
    assert store.get(stage).document("value")["value"] == 1
    assert store.sweep() == 0, "what the killed worker left must have been swept"


def test_a_worker_killed_after_it_was_asked_is_heard_of_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies between the question and the look at who is alive; its stage must not be lost with it."""
    executor, stage = Processes(tmp_path, 1), Sleep()
    executor.start(stage)
    (worker,) = executor._workers
    ask = worker.finish

    def ask_and_kill() -> tuple[Stage, StageOutcome] | None:
        answer = ask()
        worker.process.kill()
        worker.process.join()
        return answer

    monkeypatch.setattr(worker, "finish", ask_and_kill)
    assert executor.wait(0.0) == []
    monkeypatch.undo()
    ((ended, outcome),) = executor.wait(30.0)
    assert (ended.key, outcome.ending) == (stage.key, "killed")
    executor.close(abandon=True)


def test_a_stage_that_always_kills_its_worker_is_given_up(tmp_path: Path) -> None:
    store = Store(tmp_path)
    deadly, harmless = Deadly(), Add(value=3)
    tally = compute_stages([deadly, harmless], store, Processes(store.root, 2))
    assert tally.computed == 1
    assert "killed" in tally.failures[0].message
    assert "tried 3 times" in tally.failures[0].message


@pytest.mark.journey
def test_kills_at_random_moments_change_nothing(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    """SIGKILL the whole run again and again while it works; the artifacts are those of an undisturbed one."""
    quiet, noisy, rng = Store(tmp_path / "quiet"), Store(tmp_path / "noisy"), random.Random(0)
    run_stages(slow_graph(), quiet, workers=2)
    for _ in range(3):
        before = len(noisy.artifacts())
        with subprocess.Popen([sys.executable, __file__, str(noisy.root)], start_new_session=True) as run:
            wait_until(lambda done=before: len(noisy.artifacts()) > done, run)
            time.sleep(rng.uniform(0, 0.1))
            run.kill()
        assert not noisy.holds(slow_graph()[-1]), "the kill must meet unfinished work"
    time.sleep(1)  # workers leave with their parent, at the latest after a fifth of a second
    noisy.sweep()
    assert run_stages(slow_graph(), noisy, workers=2).computed >= 1
    for stage in in_order(slow_graph()):
        assert noisy.get(stage).digest() == quiet.get(stage).digest()


if __name__ == "__main__":
    run_stages(slow_graph(), Store(Path(sys.argv[1])), workers=2)
