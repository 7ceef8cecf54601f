"""Progress, plan and tables of a study on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from remanence.cli import console
from remanence.stages import Watcher

if TYPE_CHECKING:
    from remanence.stages import Stage
    from remanence.stages.worker import StageOutcome


class LiveStages(Watcher):
    """A live table of stages by kind, with the time left; shown on a terminal only."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._counts: dict[str, dict[str, int]] = {}
        self._cost_left: dict[str, float] = {}
        self._spent: dict[str, tuple[float, float]] = {}
        self._started = time.monotonic()
        self._live = Live(console=console.err, refresh_per_second=2, transient=True, auto_refresh=False)

    def __enter__(self) -> LiveStages:
        if console.err.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, reused: Sequence[Stage], todo: Sequence[Stage]) -> None:
        """Count the finished stages and those to compute."""
        for state, stages in (("reused", reused), ("waiting", todo)):
            for stage in stages:
                self._move(stage, None, state)
        for stage in todo:
            self._cost_left[stage.kind] = self._cost_left.get(stage.kind, 0.0) + stage.cost

    def started(self, stage: Stage) -> None:
        """Count one more running stage."""
        self._move(stage, "waiting", "running")

    def ended(self, stage: Stage, outcome: StageOutcome, *, again: bool) -> None:
        """Count one running stage less."""
        done = outcome.ending == "done"
        self._move(stage, "running", "waiting" if again else "done" if done else "failed")
        if again:
            return
        kind = stage.kind
        self._cost_left[kind] -= stage.cost
        if done:
            seconds, cost = self._spent.get(kind, (0.0, 0.0))
            self._spent[kind] = seconds + outcome.seconds, cost + stage.cost

    def beat(self) -> None:
        """Draw the table again."""
        if self._live.is_started:
            self._live.update(self._table(), refresh=True)

    def seconds_left(self) -> float | None:
        """The work left, at the speed so far, divided by the workers; None before a stage has ended."""
        known = [(seconds, cost) for seconds, cost in self._spent.values() if cost > 0]
        if not known:
            return None
        usual = sum(seconds for seconds, _ in known) / sum(cost for _, cost in known)
        left = 0.0
        for kind, cost in self._cost_left.items():
            seconds, done = self._spent.get(kind, (0.0, 0.0))
            left += cost * (seconds / done if done else usual)
        return left / self._workers

    def _move(self, stage: Stage, before: str | None, after: str) -> None:
        counts = self._counts.setdefault(stage.kind, {})
        if before is not None:
            counts[before] -= 1
        counts[after] = counts.get(after, 0) + 1

    def _table(self) -> Table:
        left = self.seconds_left()
        caption = f"{duration(time.monotonic() - self._started)} so far"
        caption += "" if left is None else f", about {duration(left)} left"
        table = Table(caption=caption, box=None, padding=(0, 2))
        columns = ("reused", "done", "running", "waiting", "failed")
        for name in ("stage", *columns):
            table.add_column(name, justify="left" if name == "stage" else "right")
        for kind, counts in self._counts.items():
            table.add_row(kind, *(str(counts.get(state, 0) or "") for state in columns))
        return table


def duration(seconds: float) -> str:
    """Format seconds: 1 h 05 min, 3 min 20 s, 12 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def print_plan(document: dict[str, Any]) -> None:
    """Print the stages by kind, inputs before the stages that use them, with their cost."""
    kind_of = {stage["key"]: stage["kind"] for stage in document["stages"]}
    table = Table(box=None, padding=(0, 2))
    for name in ("stage", "needs", "done", "to do", "core time"):
        table.add_column(name, justify="left" if name in ("stage", "needs") else "right")
    for kind in dict.fromkeys(kind_of.values()):
        stages = [stage for stage in document["stages"] if stage["kind"] == kind]
        needs = dict.fromkeys(kind_of[need] for stage in stages for need in stage["needs"])
        done = sum(stage["done"] for stage in stages)
        seconds = sum(stage["seconds"] for stage in stages)
        table.add_row(kind, ", ".join(needs), str(done), str(len(stages) - done), duration(seconds))
    console.out.print(table)
    console.out.print(
        f"About {duration(document['wall_seconds'])} with {document['workers']} workers "
        f"({duration(document['core_seconds'])} of computing time), estimated from a few steps on this machine.",
        soft_wrap=True,
    )


def print_tables(tables: Mapping[str, Any]) -> None:
    """Print the tables of a result."""
    for title, content in tables.items():
        table = Table(*content["header"], title=title, box=None, padding=(0, 2), title_justify="left")
        for row in content["rows"]:
            table.add_row(*row)
        console.out.print(table)
