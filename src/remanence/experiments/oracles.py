"""Oracles: models trained from scratch without the forget set."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path

from torch import nn

from remanence.storage import to_toml
from remanence.tasks import Task, derive_seed
from remanence.training import Run, Training, open_run, train_and_record
from remanence.training.train_run import Progress, RunSettings, train_run
from remanence.types import ForgetSet, Ids


def oracle_seed(seed: int, index: int = 0) -> int:
    """The seed of an oracle: other initial weights and batches than those of any run with a seed of its own."""
    return derive_seed(seed, "oracle", index)


def train_without(task: Task, ids: Ids, *, seed: int) -> tuple[nn.Module, int]:
    """A model of the task that never saw these examples, and the steps of its training."""
    training = Training(task.new_model(seed), task.train.without(ids), task.recipe, seed=seed)
    train_and_record(training)
    return training.model, training.step


def oracle_settings(run: Run, forget_set: ForgetSet, *, seed: int) -> RunSettings:
    """The settings of an oracle run: those of the run, with another seed and without the forget set.

    Poisoned examples that stay keep the run's own noise.
    """
    if run.builder is None:
        run.check_trusted()
    settings = run.settings
    gone = {*run.removed.tolist(), *forget_set.ids.tolist()}
    return replace(
        settings,
        seed=seed,
        without=tuple(sorted(gone)),
        poison=tuple(example for example in settings.poison if example not in gone),
        poison_seed=settings.noise_seed if settings.poison else None,
        record=0,
        keep_checkpoints=False,
    )


def cached_oracle(
    run: Run,
    forget_set: ForgetSet,
    cache: Path,
    *,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> Run:
    """The oracle run of this seed, trained into `cache` unless it exists; if interrupted, it is resumed.

    Its folder is named by a hash of the data and of all settings.
    """
    settings = oracle_settings(run, forget_set, seed=seed)
    question = to_toml(asdict(settings)) + run.training_digest()
    out = cache / f"oracle-{hashlib.sha256(question.encode()).hexdigest()[:16]}"
    train_run(settings, out, resume=True, progress=progress, builder=run.builder)
    return open_run(out, builder=run.builder)
