"""The one loop that unlearns and measures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from remanence.audit import Context
from remanence.data import Split
from remanence.errors import NumericalError
from remanence.experiments.measuring import NO_CONTEXT, measure, read_measurements
from remanence.storage import Folder
from remanence.training import Checkpoints, Training
from remanence.types import Measurement

Until = Callable[[Sequence[Measurement]], bool]
"""Called after every evaluation with all measurements so far: whether to stop. Must depend on nothing else."""


@dataclass(frozen=True)
class Evaluations:
    """What to measure while unlearning, on which data, and when.

    Args:
        split: the data to measure on; can be a sample of the data that are unlearned.
        metrics: names of the metrics.
        steps: the steps to measure after; step 0 is before unlearning.
        seed: the seed that the measurements carry.
        context: what some metrics need beyond the model's outputs.
    """

    split: Split
    metrics: tuple[str, ...]
    steps: Collection[int]
    seed: int
    context: Context = NO_CONTEXT

    def of(self, training: Training) -> list[Measurement]:
        """The measurements that are due now; on one process only."""
        if not training.ranks.first or training.step not in self.steps:
            return []
        return measure(
            training.model,
            self.split,
            self.metrics,
            step=training.step,
            seed=self.seed,
            context=self.context,
        )


@dataclass(frozen=True)
class Trajectory:
    """What was measured while unlearning.

    Args:
        rows: the measurements, in the order of their steps.
        diverged: the error that ended it early, if the loss or the weights stopped being finite.
    """

    rows: list[Measurement]
    diverged: NumericalError | None = None

    @property
    def last_step(self) -> int:
        """The step of the last evaluation."""
        return max(row.step for row in self.rows)


def unlearn_and_measure(
    training: Training,
    evaluations: Evaluations,
    *,
    steps: int | None = None,
    until: Until = lambda rows: False,
    checkpoints: Checkpoints | None = None,
    checkpoint_every: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Trajectory:
    """Take unlearning steps and measure on the way.

    Divergence does not raise: it is part of the result, and the caller decides what it means.

    Args:
        training: an unlearning method's run, as `Method.begin` makes it; its model is changed in place.
        evaluations: what to measure, and when.
        steps: stop after this many; by default the method's whole length.
        until: stop early when this holds for the measurements so far; on a single process.
        checkpoints: save the state here, and continue from the newest one.
        checkpoint_every: steps between checkpoints; one epoch when 0.
        progress: called after every step with the steps taken and the total.
    """
    total = training.total_steps if steps is None else steps
    rows = checkpoints.restore(training) if checkpoints is not None else []
    rows = rows or evaluations.of(training)
    every = checkpoint_every or training.steps_per_epoch
    taken = training.steps()
    done = until(rows)
    try:
        while training.step < total and not done:
            next(taken)
            due = evaluations.of(training)
            rows += due
            done = bool(due) and until(rows)
            if (
                checkpoints is not None
                and training.ranks.first
                and (training.step % every == 0 or training.step == total or done)
            ):
                checkpoints.save(training, rows)
            progress(training.step, total)
    except NumericalError as error:
        return Trajectory(rows, error)
    return Trajectory(rows)


def read_trajectory(folder: Folder, document: str) -> Trajectory:
    """What a stage measured, and the divergence that its document names."""
    diverged = folder.document(document)["diverged"]
    return Trajectory(read_measurements(folder), None if diverged is None else NumericalError(diverged))
