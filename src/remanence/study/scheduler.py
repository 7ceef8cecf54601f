"""Compute what is missing: inputs before what uses them, as many at once as there are workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from remanence.errors import RemanenceError
from remanence.study.executors import Executor
from remanence.study.ledger import Ledger
from remanence.study.processes import Processes
from remanence.study.stages import Stage
from remanence.study.store import Store
from remanence.study.worker import Outcome

ATTEMPTS = 3
"""How often a stage is tried whose process was killed, or that failed in a way that may pass."""
_BEAT = 0.5


@dataclass(frozen=True)
class Failure:
    """A stage that could not be computed, and why."""

    stage: Stage
    sentence: str
    log: str


@dataclass(frozen=True)
class Tally:
    """What a run of stages came to."""

    computed: int
    reused: int
    seconds: Mapping[str, float]
    """Work done by kind of stage, added up over processes."""
    failures: tuple[Failure, ...] = ()
    blocked: int = 0
    """Stages that could not begin because one they need failed."""


class Watcher:
    """Is told how it goes; this one does not care."""

    def begin(self, reused: Sequence[Stage], todo: Sequence[Stage]) -> None:
        """Once, before the first stage."""

    def started(self, stage: Stage) -> None:
        """A stage is under way."""

    def ended(self, stage: Stage, outcome: Outcome, *, again: bool) -> None:
        """A stage ended, well or not; `again` when it will be tried once more."""

    def beat(self) -> None:
        """About twice a second."""


@dataclass
class _Progress:
    """Where every stage stands."""

    waiting: list[Stage]
    ready: set[str]
    running: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    computed: int = 0

    def next(self) -> Stage | None:
        """The first stage whose inputs are all there."""
        for stage in self.waiting:
            if all(need.key in self.ready for need in stage.needs):
                self.waiting.remove(stage)
                return stage
        return None

    def succeed(self, stage: Stage, seconds: float) -> None:
        """A stage is done."""
        self.ready.add(stage.key)
        self.computed += 1
        self.seconds[stage.kind.name] = self.seconds.get(stage.kind.name, 0.0) + seconds


def compute_stages(
    goals: Sequence[Stage], store: Store, executor: Executor, watcher: Watcher | None = None
) -> Tally:
    """Make every artifact that is missing.

    A stage whose worker is killed is tried again, as is one that failed in a way that may pass; a stage that cannot
    succeed is reported while all that does not depend on it goes on. No room left on the disk ends the run.

    Args:
        goals: the stages wanted; what they need comes along.
        store: where artifacts are.
        executor: who computes; closed at the end.
        watcher: told how it goes.
    """
    watcher = watcher or Watcher()
    there, todo = store.survey(goals)
    watcher.begin(there, todo)
    store.discard(todo)  # what is damaged, or depends on something missing, is made again
    progress = _Progress(list(todo), {stage.key for stage in there})
    try:
        _drive(progress, store, executor, watcher)
    except BaseException:
        executor.close(abandon=True)
        if executor.local:
            store.sweep()
        raise
    executor.close(abandon=False)
    return Tally(
        progress.computed,
        len(there),
        dict(progress.seconds),
        tuple(progress.failures),
        blocked=len(progress.waiting),
    )


def run_stages(
    goals: Sequence[Stage],
    store: Store,
    *,
    workers: int,
    on_start: Callable[[list[Stage], list[Stage]], None] = lambda reused, todo: None,
    on_done: Callable[[Stage], None] = lambda stage: None,
) -> Tally:
    """`compute_stages` on processes of this machine; a failure is raised, after all that could be done was done.

    Args:
        goals: the stages wanted; what they need comes along.
        store: where artifacts are.
        workers: how many processes, one thread each.
        on_start: told once which stages are already there and which are to be computed.
        on_done: told after each computed stage.
    """
    tally = compute_stages(goals, store, Processes(store.root, workers), _Calls(on_start, on_done))
    if tally.failures:
        raise RemanenceError(f"{tally.failures[0].sentence} What was finished is kept.")
    return tally


@dataclass(frozen=True)
class _Calls(Watcher):
    """Two functions as a watcher."""

    on_start: Callable[[list[Stage], list[Stage]], None]
    on_done: Callable[[Stage], None]

    def begin(self, reused: Sequence[Stage], todo: Sequence[Stage]) -> None:
        """Hand on."""
        self.on_start(list(reused), list(todo))

    def ended(self, stage: Stage, outcome: Outcome, *, again: bool) -> None:
        """Hand on what went well."""
        if outcome.ending == "done":
            self.on_done(stage)


def _drive(progress: _Progress, store: Store, executor: Executor, watcher: Watcher) -> None:
    ledger = Ledger(store.root)
    while True:
        while len(progress.running) < executor.slots and (stage := progress.next()) is not None:
            progress.running.add(stage.key)
            executor.start(stage)
            watcher.started(stage)
        if not progress.running:
            return
        for stage, outcome in executor.wait(_BEAT):
            progress.running.discard(stage.key)
            if outcome.ending == "killed" and executor.local:
                store.sweep()
            again = _settle(progress, store, stage, outcome)
            if outcome.ending == "done":
                ledger.note(stage, outcome.seconds, outcome.machine)
            watcher.ended(stage, outcome, again=again)
        watcher.beat()


def _settle(progress: _Progress, store: Store, stage: Stage, outcome: Outcome) -> bool:
    """Note how a stage ended; whether it goes back in line."""
    if outcome.ending == "done":
        progress.succeed(stage, outcome.seconds)
        return False
    if outcome.ending == "full":
        raise RemanenceError(f"{outcome.sentence}. What was finished is kept; make room and run it again.")
    tries = progress.attempts[stage.key] = progress.attempts.get(stage.key, 0) + 1
    if outcome.ending != "failed" and tries < ATTEMPTS:
        progress.waiting.insert(0, stage)
        return True
    progress.failures.append(Failure(stage, _reason(outcome, tries), str(store.log(stage))))
    return False


def _reason(outcome: Outcome, tries: int) -> str:
    return outcome.sentence if tries == 1 else f"{outcome.sentence} (tried {tries} times)"
