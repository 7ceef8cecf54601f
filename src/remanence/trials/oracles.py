"""Oracles: models trained from scratch without the forget set, each trained once."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path

from remanence.storage import to_toml
from remanence.training import Run, open_run
from remanence.training.run import Progress, RunSettings, train_run
from remanence.types import ForgetSet


def oracle_settings(run: Run, forget_set: ForgetSet, *, seed: int) -> RunSettings:
    """How to train an oracle for a forget set: as the run was, from the seed's own weights, without the set.

    Poisoned examples that stay keep the run's own noise.
    """
    settings = run.settings
    gone = {*run.removed.tolist(), *forget_set.ids.tolist()}
    return replace(
        settings,
        seed=seed,
        without=tuple(sorted(gone)),
        poison=tuple(each for each in settings.poison if each not in gone),
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
    """The oracle of this seed, trained into `cache` unless it is there; begun and killed, it goes on.

    Its folder is named by a hash of the data and of everything that was asked of the training.
    """
    settings = oracle_settings(run, forget_set, seed=seed)
    question = to_toml(asdict(settings)) + run.training_digest()
    out = cache / f"oracle-{hashlib.sha256(question.encode()).hexdigest()[:16]}"
    train_run(settings, out, resume=True, progress=progress)
    return open_run(out)
