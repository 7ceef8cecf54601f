"""What a person sees of a study under way."""

import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from remanence.cli import console
from remanence.cli.study_view import LiveStages, duration
from remanence.stages import Read, Stage
from remanence.stages.worker import StageOutcome
from remanence.storage import Draft


@dataclass(frozen=True, eq=False, kw_only=True)
class Nothing(Stage):
    kind = "train"

    i: int

    def compute(self, draft: Draft, read: Read) -> None:
        pass


STAGES = [Nothing(i=i, cost=10.0) for i in range(4)]


def watched(workers: int) -> LiveStages:
    watcher = LiveStages(workers)
    watcher.begin([], STAGES)
    watcher.started(STAGES[0])
    watcher.ended(STAGES[0], StageOutcome("done", 6.0), again=False)
    return watcher


def test_the_time_left_is_the_work_left_at_the_pace_so_far() -> None:
    fresh = LiveStages(1)
    fresh.begin([], STAGES)
    assert fresh.seconds_left() is None
    assert watched(1).seconds_left() == pytest.approx(18.0)
    assert watched(2).seconds_left() == pytest.approx(9.0)


def test_a_stage_that_is_tried_again_is_still_to_be_done() -> None:
    watcher = watched(1)
    watcher.started(STAGES[1])
    watcher.ended(STAGES[1], StageOutcome("killed"), again=True)
    assert watcher.seconds_left() == pytest.approx(18.0)
    watcher.started(STAGES[1])
    watcher.ended(STAGES[1], StageOutcome("failed"), again=False)
    assert watcher.seconds_left() == pytest.approx(12.0)


def test_a_terminal_gets_a_table_and_a_pipe_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        screen = io.StringIO()
        monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=terminal, width=100))
        with watched(2) as watcher:
            watcher.beat()
        assert ("running" in screen.getvalue()) is terminal
        assert ("left" in screen.getvalue()) is terminal


def test_durations_as_people_say_them() -> None:
    assert [duration(seconds) for seconds in (12.2, 200, 3900)] == ["12 s", "3 min 20 s", "1 h 05 min"]
