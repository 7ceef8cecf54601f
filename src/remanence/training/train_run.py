"""Train and record a trace: in memory, or as a run in a folder that can be interrupted and resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

from remanence.batches import call, device_of, moved
from remanence.data import Examples
from remanence.errors import DataError, InputError
from remanence.gradients.evaluation_mode import evaluating
from remanence.storage import (
    SEAL,
    UNFINISHED,
    Folder,
    claim,
    open_folder,
)
from remanence.storage.lock import exclusive
from remanence.tasks import (
    ASSUMED_SIGMA,
    Poison,
    Task,
)
from remanence.tasks.importing import find_import_path
from remanence.training.checkpoints import Checkpoints
from remanence.training.fitting import FITTED, final_trace, fit_model
from remanence.training.loop import Training
from remanence.training.placement import Placement
from remanence.training.ranks import SINGLE_PROCESS, Ranks
from remanence.training.recorder import Recorder
from remanence.training.run_settings import RunSettings, seal_run
from remanence.types import Measurement, as_ids

_BATCH = 1024
Progress = Callable[[int, int], None]
"""(steps done, steps in total) -> None."""


@dataclass(frozen=True)
class Recording:
    """How to record a trace.

    Args:
        checkpoints: number of checkpoints after the start.
        placement: placement of the checkpoints: `even`, `log` or `adaptive`.
        sigma: the noise to assume in the accounting if training adds none.
        out: folder to keep single rows in, so that a resumed run finds them.
    """

    checkpoints: int
    placement: Placement = "adaptive"
    sigma: float = ASSUMED_SIGMA
    out: Path | None = None

    def recorder(self, training: Training) -> Recorder:
        """A recorder for a run before its first step, or restored from a checkpoint."""
        mechanism = training.recipe.mechanism(
            len(training.examples), assumed_sigma=self.sigma, model=training.model
        )
        return Recorder(
            training.model,
            training.examples,
            total_steps=training.total_steps,
            checkpoints=self.checkpoints,
            placement=self.placement,
            mechanism=mechanism,
            rows=None if self.out is None else self.out / "rows",
            start=training.step,
            provenance={"data": training.data_digest, "seed": str(training.seed)},
            ranks=training.ranks,
        )


def train_and_record(
    training: Training,
    recording: Recording | None = None,
    *,
    after_step: Callable[[int], None] = lambda step: None,
) -> Recorder | None:
    """Take all remaining steps and record a trace; returns the recorder.

    Args:
        training: a run before its first step, or restored from a checkpoint.
        recording: how to record; None to record nothing.
        after_step: called after every step with the number of steps taken.
    """
    recorder = None if recording is None else recording.recorder(training)
    for step in training.steps():
        if recorder is not None:
            recorder.step()
        after_step(step)
    return recorder


def train_run(
    settings: RunSettings,
    out: Path,
    *,
    resume: bool = False,
    ranks: Ranks = SINGLE_PROCESS,
    progress: Progress = lambda done, total: None,
    task: Task | None = None,
) -> Folder:
    """Train a model, record its trace, and write both as a run into `out`.

    If the run is interrupted, `resume` continues from the last checkpoint. The result is bitwise the same.

    Args:
        settings: data, model, recipe, and what to record.
        out: folder of the run.
        resume: continue an unfinished run.
        ranks: the processes that share the work.
        progress: called with the steps taken and the total.
        task: the task, instead of the names or import path in `settings`. The sealed run is trusted if its import path
            is that of this task, or if no task is given here and the path was thus executed by this call.
    """
    settings = settings.with_fitted_table()
    is_new = ranks.first and claim(asdict(settings), out, resume)
    ranks.wait()
    if (out / SEAL).exists():
        return open_folder(out, "training")
    with exclusive(out / f".lock-{ranks.rank}", f"Another process is training in {out}; wait for it."):
        try:
            own_code = task is None or find_import_path(task) == settings.code
            _train(settings, out, ranks, progress, task or settings.source.open(), own_code)
        except InputError:
            if is_new:  # a run that cannot begin must not block the folder
                (out / UNFINISHED).unlink(missing_ok=True)
            raise
    ranks.wait()
    return open_folder(out, "training")


def _train(
    settings: RunSettings,
    out: Path,
    ranks: Ranks,
    progress: Progress,
    task: Task,
    own_code: bool,
) -> None:
    poison = settings.draw_poison(task.train)
    examples = _training_set(settings, task, poison)
    if task.fit is not None:
        _train_by_fit(settings, out, ranks, task, examples, own_code)
        return
    training = Training(
        task.new_model(settings.seed), examples, settings.recipe, seed=settings.seed, ranks=ranks
    )
    checkpoints = Checkpoints(out / "checkpoints", keep_all=settings.keep_checkpoints)
    rows = checkpoints.restore(training)
    every = settings.checkpoint_every or training.steps_per_epoch
    recording = (
        Recording(settings.record, settings.placement, settings.sigma, out) if settings.record else None
    )

    def after_step(step: int) -> None:
        if step % training.steps_per_epoch == 0:
            accuracy = _accuracy(training.model, task.test)
            if accuracy is not None:
                rows.append(Measurement("accuracy", "test", accuracy, step, settings.seed))
        if step % every == 0 and ranks.first:
            checkpoints.save(training, rows)
        progress(step, training.total_steps)

    recorder = train_and_record(training, recording, after_step=after_step)
    if ranks.first:
        trace = None if recorder is None else recorder.trace()
        seal_run(out, settings, training.model, rows, trace=trace, poison=poison, own_code=own_code)
        if recorder is not None:
            recorder.clear()


def _train_by_fit(
    settings: RunSettings, out: Path, ranks: Ranks, task: Task, examples: Examples, own_code: bool
) -> None:
    """Train by the user's own function; the trace has one checkpoint, the end, unless they recorded it themselves."""
    if ranks.size > 1:
        raise InputError("A task with its own `fit` is trained by one process; start it without torchrun.")
    model, steps = fit_model(task, examples, seed=settings.seed)
    accuracy = _accuracy(model, task.test)
    rows = (
        [] if accuracy is None else [Measurement("accuracy", "test", accuracy, max(1, steps), settings.seed)]
    )
    trace = None
    if settings.record:
        mechanism = replace(
            settings.recipe.mechanism(len(examples), assumed_sigma=settings.sigma, model=model),
            steps=max(1, steps),
            departures=(FITTED,),
        )
        trace = final_trace(model, examples, mechanism, {"seed": str(settings.seed)})
    seal_run(out, settings, model, rows, trace=trace, own_code=own_code)


def _training_set(settings: RunSettings, task: Task, poison: Poison | None) -> Examples:
    poisoned = task.train if poison is None else poison.applied(task.train)
    train = poisoned.without(as_ids(settings.without)) if settings.without else poisoned
    if not len(train):
        raise DataError(f"Expected examples to train on; `without` leaves out all {len(task.train)}.")
    return train


def _accuracy(model: nn.Module, test: Examples) -> float | None:
    """Share of right answers; None if the task does not say which are right."""
    device = device_of(model)
    right = []
    with evaluating(model), torch.no_grad():
        for batch in test.batches(_BATCH):
            inputs, labels = moved(batch, device)
            right.append(test.readout.is_correct(call(model, inputs), labels))
    judged = [part for part in right if part is not None]
    return int(torch.cat(judged).sum()) / len(test) if judged else None
