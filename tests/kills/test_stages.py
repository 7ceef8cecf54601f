"""Workers that are killed at a stage, and whole runs of stages that are killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from remanence.storage import Draft, Folder
from remanence.study import Stage, StageKind, Store, compute_stages, in_order, run_stages
from remanence.study.processes import Processes
from remanence.study.worker import Outcome


def _add(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    values = [folder.document("value")["value"] for folder in inputs]
    draft.document("value", {"value": params["value"] + sum(values)})


def _die_once(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    mark = Path(params["mark"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    draft.document("value", {"value": 1})


def _die(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _slow(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    time.sleep(0.15)
    _add(draft, params, inputs)


def _sleep(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    time.sleep(60)


ADD = StageKind("add", 1, _add)
SLEEP = StageKind("sleep", 1, _sleep)
SLOW = StageKind("slow", 1, _slow)


def slow_graph() -> list[Stage]:
    first = [Stage(SLOW, {"value": i}) for i in range(6)]
    return [*first, Stage(SLOW, {"value": 100}, tuple(first))]


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    stage = Stage(StageKind("mortal", 1, _die_once), {"mark": str(tmp_path / "mark")})
    store = Store(tmp_path / "store")
    run_stages([stage], store, workers=1)
    assert store.get(stage).document("value")["value"] == 1
    assert store.sweep() == 0, "what the killed worker left must have been swept"


def test_a_worker_killed_after_it_was_asked_is_heard_of_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies between the question and the look at who is alive; its stage must not be lost with it."""
    executor, stage = Processes(tmp_path, 1), Stage(SLEEP, {})
    executor.start(stage)
    (worker,) = executor._workers
    ask = worker.finish

    def ask_and_kill() -> tuple[Stage, Outcome] | None:
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
    deadly, harmless = Stage(StageKind("deadly", 1, _die), {}), Stage(ADD, {"value": 3})
    tally = compute_stages([deadly, harmless], store, Processes(store.root, 2))
    assert tally.computed == 1
    assert "killed" in tally.failures[0].sentence
    assert "tried 3 times" in tally.failures[0].sentence


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
