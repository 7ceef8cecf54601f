"""Oracles: models trained from scratch without the forget set."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from torch import nn

from remanence.stages import NOT_IN_KEY, Read, Stage
from remanence.storage import Draft, to_toml
from remanence.tasks import Task, derive_seed
from remanence.training import Run, RunReference, fit_model, open_run
from remanence.training.run_settings import RunSettings
from remanence.training.train_run import Progress, train_run
from remanence.types import ForgetSet, Ids, as_ids


def oracle_seed(seed: int, index: int = 0) -> int:
    """The seed of an oracle: other initial weights and batches than those of any run with a seed of its own."""
    return derive_seed(seed, "oracle", index)


def train_without(task: Task, ids: Ids, *, seed: int) -> tuple[nn.Module, int]:
    """A model of the task that never saw these examples, and the steps of its training."""
    return fit_model(task, task.train.without(ids), seed=seed)


def oracle_settings(run: Run, forget_set: ForgetSet, *, seed: int) -> RunSettings:
    """The settings of an oracle run: those of the run, with another seed and without the forget set.

    Poisoned examples that stay keep the run's own noise; canaries that were left out stay left out.
    """
    if run.given_task is None:
        run.check_trusted()
    settings = run.settings
    gone = {*run.present(run.removed).tolist(), *forget_set.ids.tolist()}
    return replace(
        settings,
        seed=seed,
        without=tuple(sorted(gone)),
        poison=tuple(example for example in settings.poison if example not in gone),
        poison_seed=settings.noise_seed if settings.poison else None,
        canaries=(),  # the coins are those of the run
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
    question = to_toml(asdict(replace(settings, device=""))) + run.training_digest()
    out = cache / f"oracle-{hashlib.sha256(question.encode()).hexdigest()[:16]}"
    train_run(settings, out, resume=True, progress=progress, task=run.given_task)
    return open_run(out, task=run.given_task, device=run.settings.device)


@dataclass(frozen=True, eq=False, kw_only=True)
class OracleTraining(Stage):
    """The training of one oracle, as work for an executor. The oracle itself is a run in a folder of its own.

    Args:
        run: the run that the oracle is compared with.
        ids: ids of the forget set.
        seed: seed of the oracle.
        cache: folder of the oracles.
    """

    kind = "oracle-training"

    run: RunReference
    ids: tuple[int | str, ...]
    seed: int
    cache: str = field(metadata=NOT_IN_KEY)

    def compute(self, draft: Draft, read: Read) -> None:
        """Train the oracle, or continue its training; write its digest."""
        forget_set = ForgetSet("oracle", as_ids(self.ids))
        oracle = cached_oracle(self.run.open(), forget_set, Path(self.cache), seed=self.seed)
        draft.document("oracle", {"digest": oracle.folder.digest()})
