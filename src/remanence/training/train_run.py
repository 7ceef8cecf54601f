"""Train and record a trace: in memory, or as a run in a folder that can be interrupted and resumed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remanence.data import Examples
from remanence.errors import DataError, InputError
from remanence.gradients.evaluation_mode import evaluating
from remanence.models import is_import_path
from remanence.stages import NOT_IN_KEY
from remanence.storage import (
    SEAL,
    TRACE_FILES,
    UNFINISHED,
    Draft,
    Folder,
    claim,
    open_folder,
    seal_in_place,
    write_trace,
)
from remanence.storage.lock import exclusive
from remanence.tasks import DataSource, ModelSource, Poison, Recipe, Task, TaskSource, draw_poison
from remanence.tasks.poison import VARIANCE, write_poison
from remanence.training.checkpoints import Checkpoints, write_weights
from remanence.training.loop import Training
from remanence.training.placement import Placement
from remanence.training.ranks import SINGLE_PROCESS, Ranks
from remanence.training.recorder import Recorder
from remanence.training.trust import trust
from remanence.types import Measurement, as_ids, check_positive

ASSUMED_SIGMA = 0.1
"""The noise that the accounting assumes by default if training added none."""
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
            out=self.out,
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


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run; written into its folder as config.toml.

    Args:
        data: name or path of a data set.
        model: name of a model, or `package.module:function`.
        recipe: how to train.
        seed: random seed for the initial weights, the batch order and the noise.
        model_options: keyword arguments of the model.
        data_dir: folder of the data sets.
        record: number of checkpoints of the trace; 0 for no trace.
        placement: placement of these checkpoints: `even`, `log` or `adaptive`.
        sigma: the noise to assume in the accounting if training adds none.
        checkpoint_every: steps between checkpoints from which the run can be resumed; 0 for one epoch.
        keep_checkpoints: keep all of these checkpoints, to make a trace from them later.
        without: ids to leave out of training; the run is then an oracle for them.
        poison: ids of examples whose inputs get Gaussian noise, which the metric `gus` tests for.
        poison_variance: variance of that noise, on the scale of the network's inputs.
        poison_seed: random seed of that noise; None for `seed`. An oracle must use that of the run it is compared with.
    """

    data: str
    model: str
    recipe: Recipe
    seed: int = 0
    model_options: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = field(default=None, metadata=NOT_IN_KEY)
    record: int = 35
    placement: Placement = "adaptive"
    sigma: float = ASSUMED_SIGMA
    checkpoint_every: int = 0
    keep_checkpoints: bool = False
    without: tuple[int | str, ...] = ()
    poison: tuple[int | str, ...] = ()
    poison_variance: float = VARIANCE
    poison_seed: int | None = None

    def __post_init__(self) -> None:
        check_positive("poison_variance", self.poison_variance)
        if both := set(self.without) & set(self.poison):
            raise InputError(
                f"An example left out of training cannot be poisoned; {next(iter(both))!r} is both."
            )

    @property
    def noise_seed(self) -> int:
        """Seed of the poison."""
        return self.seed if self.poison_seed is None else self.poison_seed

    @property
    def source(self) -> TaskSource:
        """The task of the run, by names."""
        data = DataSource(self.data, data_dir=self.data_dir)
        return TaskSource(data, ModelSource(self.model, self.model_options), self.recipe)

    def draw_poison(self, train: Examples) -> Poison | None:
        """Draw the noise of the poisoned examples; None if there are none."""
        if not self.poison:
            return None
        ids = as_ids(self.poison)
        return draw_poison(train, ids, variance=self.poison_variance, seed=self.noise_seed)


def train_run(
    settings: RunSettings,
    out: Path,
    *,
    resume: bool = False,
    ranks: Ranks = SINGLE_PROCESS,
    progress: Progress = lambda done, total: None,
    builder: Callable[[], nn.Module] | None = None,
) -> Folder:
    """Train a model, record its trace, and write both as a run into `out`.

    If the run is interrupted, `resume` continues from the last checkpoint. The result is bitwise the same.

    Args:
        settings: data, model, recipe, and what to record.
        out: folder of the run.
        resume: continue an unfinished run.
        ranks: the processes that share the work.
        progress: called with the steps taken and the total.
        builder: builds the untrained model, instead of the name or import path in `settings`. Without it, a run whose
            settings have an import path is trusted once it is sealed.
    """
    is_new = ranks.first and claim(asdict(settings), out, resume)
    ranks.wait()
    if (out / SEAL).exists():
        return open_folder(out, "training")
    with exclusive(out / f".lock-{ranks.rank}", f"Another process is training in {out}; wait for it."):
        try:
            _train(settings, out, ranks, progress, builder)
        except InputError:
            if is_new:  # a run that cannot begin must not block the folder
                (out / UNFINISHED).unlink(missing_ok=True)
            raise
    made = open_folder(out, "training") if ranks.first else None
    if made is not None and builder is None and is_import_path(settings.model):
        trust(made)
    ranks.wait()
    return made or open_folder(out, "training")


def _train(
    settings: RunSettings,
    out: Path,
    ranks: Ranks,
    progress: Progress,
    builder: Callable[[], nn.Module] | None,
) -> None:
    task = settings.source.open()
    task = task if builder is None else replace(task, model=builder)
    poison = settings.draw_poison(task.train)
    examples = _training_set(settings, task, poison)
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
            rows.append(Measurement("accuracy", "test", accuracy, step, settings.seed))
        if step % every == 0 and ranks.first:
            checkpoints.save(training, rows)
        progress(step, training.total_steps)

    recorder = train_and_record(training, recording, after_step=after_step)
    if ranks.first:
        _seal(out, settings, training.model, rows, recorder, poison)


def _training_set(settings: RunSettings, task: Task, poison: Poison | None) -> Examples:
    poisoned = task.train if poison is None else poison.applied(task.train)
    train = poisoned.without(as_ids(settings.without)) if settings.without else poisoned
    if not len(train):
        raise DataError(f"Expected examples to train on; `without` leaves out all {len(task.train)}.")
    return train


def _accuracy(model: nn.Module, test: Examples) -> float:
    with evaluating(model), torch.no_grad():
        correct = sum(
            int((model(inputs).argmax(dim=1) == labels).sum())
            for inputs, labels in zip(
                torch.split(test.inputs, 1024), torch.split(test.labels, 1024), strict=True
            )
        )
    return correct / len(test)


def _seal(
    out: Path,
    settings: RunSettings,
    model: nn.Module,
    rows: list[Measurement],
    recorder: Recorder | None,
    poison: Poison | None,
) -> None:
    draft = Draft(out)
    draft.config(asdict(settings))
    write_weights(draft, model)
    draft.rows("measurements", map(asdict, rows))
    files = ["config.toml", "weights.safetensors", "measurements.jsonl"]
    if recorder is not None:
        write_trace(draft, recorder.trace())
        files += TRACE_FILES
    if poison is not None:
        write_poison(draft, poison)
        files.append("poison.safetensors")
    seal_in_place(out, "training", files)
    if recorder is not None:
        recorder.clear()
    if not settings.keep_checkpoints:
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
    (out / UNFINISHED).unlink(missing_ok=True)
