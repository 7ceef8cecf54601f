"""Compute the missing stages: inputs first, as many at once as there are workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from remanence.errors import RemanenceError
from remanence.stages.executors import Executor, make_executor
from remanence.stages.stage import Stage
from remanence.stages.store import Store
from remanence.stages.timings import Timings
from remanence.stages.worker import StageOutcome

ATTEMPTS = 3
"""How often a stage is tried whose process was killed, or whose failure may be temporary."""
_BEAT = 0.5


@dataclass(frozen=True)
class Failure:
    """A stage that could not be computed, and why."""

    stage: Stage
    message: str
    log: str


@dataclass(frozen=True)
class Tally:
    """The counts and failures of a run of stages."""

    computed: int
    reused: int
    seconds: Mapping[str, float]
    """Computing time by kind of stage, summed over processes."""
    failures: tuple[Failure, ...] = ()
    blocked: int = 0
    """Stages that could not begin because one of their inputs failed."""


class Watcher:
    """Receives the progress of a run of stages; this base class ignores it."""

    def begin(self, reused: Sequence[Stage], todo: Sequence[Stage]) -> None:
        """Called once, before the first stage."""

    def started(self, stage: Stage) -> None:
        """Called when a stage starts."""

    def ended(self, stage: Stage, outcome: StageOutcome, *, again: bool) -> None:
        """Called when a stage ends, successfully or not; `again` when it will be tried once more."""

    def beat(self) -> None:
        """Called about twice a second."""


@dataclass
class _Progress:
    """The state of every stage."""

    waiting: list[Stage]
    ready: set[str]
    running: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    computed: int = 0

    def next(self) -> Stage | None:
        """The first waiting stage whose inputs are all finished."""
        for stage in self.waiting:
            if all(need.key in self.ready for need in stage.needs):
                self.waiting.remove(stage)
                return stage
        return None

    def succeed(self, stage: Stage, seconds: float) -> None:
        """Record a finished stage."""
        self.ready.add(stage.key)
        self.computed += 1
        self.seconds[stage.kind] = self.seconds.get(stage.kind, 0.0) + seconds


def compute_stages(
    goals: Sequence[Stage], store: Store, executor: Executor, watcher: Watcher | None = None
) -> Tally:
    """Compute the missing stages.

    A stage whose worker was killed, or whose failure may be temporary, is tried again. A stage that cannot succeed is
    reported, and everything that does not depend on it is still computed. A full disk ends the run.

    Args:
        goals: the stages wanted; their inputs are included.
        store: where the artifacts are.
        executor: computes the stages; closed at the end.
        watcher: receives the progress.
    """
    watcher = watcher or Watcher()
    finished, todo = store.survey(goals)
    watcher.begin(finished, todo)
    store.discard(todo)  # damaged artifacts, and those with a missing input, are computed again
    progress = _Progress(list(todo), {stage.key for stage in finished})
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
        len(finished),
        dict(progress.seconds),
        tuple(progress.failures),
        blocked=len(progress.waiting),
    )


def run_stages(
    goals: Sequence[Stage],
    store: Store,
    *,
    workers: int,
    executor: str = "process",
    address: str | None = None,
    on_start: Callable[[list[Stage], list[Stage]], None] = lambda reused, todo: None,
    on_done: Callable[[Stage], None] = lambda stage: None,
) -> Tally:
    """`compute_stages` on an executor by name; the first failure is raised after everything else is computed.

    Args:
        goals: the stages wanted; their inputs are included.
        store: where the artifacts are.
        workers: number of processes, one thread each; 0 to compute in this process.
        executor: `process` for processes of this machine, or `ray`.
        address: address of a running Ray cluster; by default Ray is started on this machine.
        on_start: called once with the finished stages and those to compute.
        on_done: called after each computed stage.
    """
    chosen = make_executor(executor, store.root, workers=workers, address=address)
    tally = compute_stages(goals, store, chosen, _Calls(on_start, on_done))
    if tally.failures:
        raise RemanenceError(f"{tally.failures[0].message} Finished work is kept.")
    return tally


@dataclass(frozen=True)
class _Calls(Watcher):
    """A watcher made of two functions."""

    on_start: Callable[[list[Stage], list[Stage]], None]
    on_done: Callable[[Stage], None]

    def begin(self, reused: Sequence[Stage], todo: Sequence[Stage]) -> None:
        self.on_start(list(reused), list(todo))

    def ended(self, stage: Stage, outcome: StageOutcome, *, again: bool) -> None:
        if outcome.ending == "done":
            self.on_done(stage)


def _drive(progress: _Progress, store: Store, executor: Executor, watcher: Watcher) -> None:
    timings = Timings(store.root)
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
                timings.add(stage, outcome.seconds, outcome.machine)
            watcher.ended(stage, outcome, again=again)
        watcher.beat()


def _settle(progress: _Progress, store: Store, stage: Stage, outcome: StageOutcome) -> bool:
    """Record how a stage ended; returns whether it is tried again."""
    if outcome.ending == "done":
        progress.succeed(stage, outcome.seconds)
        return False
    if outcome.ending == "full":
        raise RemanenceError(
            f"{outcome.message}. Finished work is kept; free some disk space and run it again."
        )
    tries = progress.attempts[stage.key] = progress.attempts.get(stage.key, 0) + 1
    if outcome.ending != "failed" and tries < ATTEMPTS:
        progress.waiting.insert(0, stage)
        return True
    progress.failures.append(Failure(stage, _reason(outcome, tries), str(store.log(stage))))
    return False


def _reason(outcome: StageOutcome, tries: int) -> str:
    return outcome.message if tries == 1 else f"{outcome.message} (tried {tries} times)"
