"""The stages of a calibration: a reference model, and one forget set unlearned against the pool."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from remanence.audit import evaluate
from remanence.audit.membership import attack_result
from remanence.experiments import Evaluations, sampled, train_without, unlearn_and_measure
from remanence.experiments.unlearn import begin_unlearning
from remanence.forecast import ReferencePool
from remanence.requests.criterion import SAMPLE, criterion_for, monitored_settings
from remanence.requests.reference_folds import assign_folds
from remanence.stages import Read, Stage
from remanence.storage import Draft, Folder
from remanence.tasks import derive_seed
from remanence.training import Run, RunReference
from remanence.types import ForgetSet, as_ids


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceModel(Stage):
    """A model trained without one fold of the data.

    Args:
        run: the run that is calibrated.
        models: number of reference models.
        index: which of them.
        seed: random seed of the folds and of all reference models.
    """

    kind = "reference"
    version = 2

    run: RunReference
    models: int
    index: int
    seed: int

    def compute(self, draft: Draft, read: Read) -> None:
        """Train it; write its log-odds and the calls of its membership attacker on the examples that it left out."""
        task = self.run.open().task
        left_out = assign_folds(task.train.labels.numpy(), self.models, seed=self.seed)[self.index]
        fold = ForgetSet("fold", task.train.ids[left_out])
        started = time.perf_counter()
        model, steps = train_without(task, fold.ids, seed=derive_seed(self.seed, "fold", self.index))
        seconds = time.perf_counter() - started
        evaluation = evaluate(model, task.split(fold))
        log_odds, calls = np.zeros(len(task.train)), np.zeros(len(task.train))
        log_odds[left_out] = (evaluation.forget.margin - evaluation.test.margin.mean()).numpy()
        calls[left_out] = attack_result(evaluation, "confidence").calls
        draft.tensors("reference", {"left_out": left_out, "log_odds": log_odds, "calls": calls})
        draft.document("training", {"steps": steps, "seconds": seconds, "test": evaluation.test.accuracy})


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationTrial(Stage):
    """One forget set, unlearned until the criterion holds or the budget ends.

    Args:
        references: the reference models, which decide when the set counts as forgotten.
        run: the run that is calibrated.
        name: name of the forget set.
        ids: its examples.
        method: the unlearning method, with `options`.
        budget: maximum number of steps.
        seed: random seed of the unlearning.
    """

    kind = "calibration-trial"
    version = 5

    references: tuple[ReferenceModel, ...]
    run: RunReference
    name: str
    ids: tuple[int | str, ...]
    method: str
    options: Mapping[str, Any]
    budget: int
    seed: int

    @property
    def forget_set(self) -> ForgetSet:
        return ForgetSet(self.name, as_ids(self.ids))

    def compute(self, draft: Draft, read: Read) -> None:
        """Unlearn the set; write the measurements and the seconds per step."""
        run = self.run.open()
        split = run.split(self.forget_set)
        pool = pool_from(run, map(read, self.references))
        criterion = criterion_for(len(self.ids), pool.expect(split.forget.ids))
        settings = monitored_settings(run, self.method, self.options, self.budget, seed=self.seed)
        _, training, total = begin_unlearning(run, split, settings)
        evaluations = Evaluations(sampled(split, SAMPLE, self.seed), settings.metrics, settings.at, self.seed)
        started = time.perf_counter()
        trajectory = unlearn_and_measure(training, evaluations, steps=total, until=criterion.holds)
        seconds = time.perf_counter() - started
        if trajectory.diverged is not None:
            raise trajectory.diverged
        draft.rows("measurements", map(asdict, trajectory.rows))
        draft.document("timing", {"seconds_per_step": seconds / trajectory.last_step})


def pool_from(run: Run, references: Iterable[Folder]) -> ReferencePool:
    """The reference pool from the artifacts of its models."""
    train, _ = run.data()
    arrays = [folder.tensors("reference") for folder in references]
    left_out, log_odds, calls = (
        np.stack([model[name] for model in arrays]) for name in ("left_out", "log_odds", "calls")
    )
    return ReferencePool(train.ids, train.labels.numpy(), left_out, log_odds, calls)
