"""How a study's progress and plan look on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from remanence.cli import console
from remanence.stages.scheduler import Watcher

if TYPE_CHECKING:
    from remanence.stages.stage import Stage
    from remanence.stages.store import Store
    from remanence.stages.worker import StageOutcome
    from remanence.study.running import Planned, StudyRun


class LiveStages(Watcher):
    """A table of stages by kind, with the time left; on a terminal only."""

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
        """Count what is there and what is to be done."""
        for state, stages in (("reused", reused), ("waiting", todo)):
            for stage in stages:
                self._move(stage, None, state)
        for stage in todo:
            self._cost_left[stage.kind] = self._cost_left.get(stage.kind, 0.0) + stage.cost

    def started(self, stage: Stage) -> None:
        """One more under way."""
        self._move(stage, "waiting", "running")

    def ended(self, stage: Stage, outcome: StageOutcome, *, again: bool) -> None:
        """One less."""
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
        """Draw it anew."""
        if self._live.is_started:
            self._live.update(self._table(), refresh=True)

    def seconds_left(self) -> float | None:
        """Work left over workers, at the pace seen so far; none before anything has ended."""
        known = [each for each in self._spent.values() if each[1] > 0]
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
            table.add_row(kind, *(str(counts.get(each, 0) or "") for each in columns))
        return table


def duration(seconds: float) -> str:
    """1 h 05 min, 3 min 20 s, 12 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def tally_document(ran: StudyRun) -> dict[str, Any]:
    """The counts of a run as JSON values."""
    tally = ran.tally
    return {
        "computed": tally.computed,
        "reused": tally.reused,
        "failed": len(tally.failures),
        "blocked": tally.blocked,
        "seconds": round(ran.seconds, 1),
        "seconds_by_stage": {kind: round(each, 1) for kind, each in sorted(tally.seconds.items())},
        "failures": [
            {"stage": each.stage.key, "why": each.message, "log": each.log} for each in tally.failures
        ],
    }


def plan_document(planned: Sequence[Planned], store: Store, workers: int) -> dict[str, Any]:
    """What is there, what is to be done, and what it will take."""
    from remanence.study.cost_estimate import estimate_cost

    there, todo = store.survey([each.goal for each in planned])
    expected = estimate_cost(todo, workers)
    done = {stage.key for stage in there}
    return {
        "studies": [each.study.name for each in planned],
        "workers": workers,
        "reused": len(there),
        "to_compute": len(todo),
        "core_seconds": round(expected.work, 1),
        "wall_seconds": round(expected.wall, 1),
        "stages": [
            {
                "key": stage.key,
                "kind": stage.kind,
                "title": stage.title,
                "done": stage.key in done,
                "seconds": round(expected.seconds.get(stage.key, 0.0), 1),
                "needs": [need.key for need in stage.needs],
            }
            for stage in [*there, *todo]
        ],
    }


def print_plan(document: dict[str, Any]) -> None:
    """The graph by kind of stage, inputs before what uses them, with its cost."""
    kind_of = {each["key"]: each["kind"] for each in document["stages"]}
    table = Table(box=None, padding=(0, 2))
    for name in ("stage", "needs", "done", "to do", "core time"):
        table.add_column(name, justify="left" if name in ("stage", "needs") else "right")
    for kind in dict.fromkeys(kind_of.values()):
        here = [each for each in document["stages"] if each["kind"] == kind]
        needs = dict.fromkeys(kind_of[need] for each in here for need in each["needs"])
        done = sum(each["done"] for each in here)
        seconds = sum(each["seconds"] for each in here)
        table.add_row(kind, ", ".join(needs), str(done), str(len(here) - done), duration(seconds))
    console.out.print(table)
    console.out.print(
        f"About {duration(document['wall_seconds'])} with {document['workers']} workers "
        f"({duration(document['core_seconds'])} of work), from a few timed steps on this machine.",
        soft_wrap=True,
    )


def print_tables(tables: Mapping[str, Any]) -> None:
    """A result's tables."""
    for title, each in tables.items():
        table = Table(title=title, box=None, padding=(0, 2), title_justify="left")
        for name in each["header"]:
            table.add_column(name)
        for row in each["rows"]:
            table.add_row(*row)
        console.out.print(table)
