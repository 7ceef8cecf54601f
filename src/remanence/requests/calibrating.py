"""Calibrate a run: train reference models, and unlearn forget sets from easy to hard against them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from remanence.audit import evaluate
from remanence.audit.membership import attack_result
from remanence.errors import InputError, RunFolderError
from remanence.experiments import (
    Evaluations,
    curve,
    read_measurements,
    sampled,
    train_without,
    unlearn_and_measure,
)
from remanence.experiments.unlearn import begin_unlearning
from remanence.forecast import CalibrationRun, ReferencePool, difficulty_of
from remanence.requests.calibration import FOLDER, Calibration, CalibrationSettings, TrialResult
from remanence.requests.calibration_sets import draw_calibration_sets
from remanence.requests.criterion import SAMPLE, SMALL, criterion_for, monitored_settings
from remanence.requests.reference_folds import assign_folds
from remanence.requests.request import model_hash
from remanence.scores import ScoreTable, score_table
from remanence.stages import Read, Stage, Store, run_stages
from remanence.storage import SEAL, Draft, Folder
from remanence.storage.lock import exclusive
from remanence.tasks import derive_seed
from remanence.training import Run, RunReference
from remanence.types import ForgetSet, as_ids

_WORK = ".calibrating"


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceModel(Stage):
    """A model trained without one fold of the data, the one with this index."""

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
    """One forget set, unlearned until the criterion of the reference models holds or the budget ends."""

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
        pool = _reference_pool(run, map(read, self.references))
        criterion = criterion_for(len(self.ids), pool.expect(split.forget.ids))
        settings = monitored_settings(run, self.method, self.options, self.budget, self.seed)
        _, training, total = begin_unlearning(run, split, settings)
        evaluations = Evaluations(sampled(split, SAMPLE, self.seed), settings.metrics, settings.at, self.seed)
        started = time.perf_counter()
        trajectory = unlearn_and_measure(training, evaluations, steps=total, until=criterion.holds)
        seconds = time.perf_counter() - started
        if trajectory.diverged is not None:
            raise trajectory.diverged
        draft.rows("measurements", map(asdict, trajectory.rows))
        draft.document("timing", {"seconds_per_step": seconds / trajectory.last_step})


def calibrate(
    run: Run,
    settings: CalibrationSettings,
    *,
    workers: int,
    own: Sequence[Run] = (),
    on_start: Callable[[list[Stage], list[Stage]], None] = lambda reused, todo: None,
    on_done: Callable[[Stage], None] = lambda stage: None,
) -> Calibration:
    """Train the reference pool and unlearn the forget sets. If interrupted, the next call uses the finished stages.

    Args:
        run: a trained run with a trace.
        settings: how to calibrate.
        workers: number of processes.
        own: runs that were already unlearned from this one; they count as further trials.
        on_start: called with the finished stages and those to compute.
        on_done: called after each computed stage.
    """
    run.check_trusted()  # workers build its model by name
    path = run.folder.path
    if (path / FOLDER / SEAL).exists():
        raise RunFolderError(
            f"{path / FOLDER} is there already; delete it to calibrate again. Nothing was changed."
        )
    settings = settings.resolved(run)
    table = score_table(run.trace())
    with exclusive(path / f"{_WORK}.lock", f"Another process is calibrating {path}; wait for it."):
        store = Store(path / _WORK)
        store.sweep()
        references = _reference_models(run, settings)
        trials = _trials(run, settings, table, references)
        run_stages(trials, store, workers=workers, on_start=on_start, on_done=on_done)
        models = [store.get(stage) for stage in references]
        pool = _reference_pool(run, models)
        results = [_result(trial.forget_set, store.get(trial), table, pool) for trial in trials]
        results += [_result_of_own_run(unlearned, run, settings, table, pool) for unlearned in own]
        calibration = Calibration(settings, pool, results, _retraining(models))
        calibration.write(path / FOLDER, model_hash(run))
        shutil.rmtree(path / _WORK)
    return calibration


def _reference_models(run: Run, settings: CalibrationSettings) -> tuple[ReferenceModel, ...]:
    return tuple(
        ReferenceModel(run=run.reference, models=settings.models, index=index, seed=settings.seed)
        for index in range(settings.models)
    )


def _trials(
    run: Run, settings: CalibrationSettings, table: ScoreTable, references: tuple[ReferenceModel, ...]
) -> list[CalibrationTrial]:
    assert settings.budget is not None  # `resolved` sets it
    losses = table.column("privacy_loss")
    labels = run.data()[0].take(losses.ids).labels.numpy()
    large = (settings.sizes[0], min(settings.sizes[1], len(losses.ids) // 4))
    return [
        CalibrationTrial(
            references=references,
            run=run.reference,
            name=forget_set.name,
            ids=tuple(forget_set.ids.tolist()),
            method=settings.method,
            options=settings.options,
            budget=settings.budget,
            seed=settings.seed,
            cost=0.3,
        )
        for count, sizes in ((settings.sets, large), (settings.small, (1, SMALL - 1)))
        for forget_set in draw_calibration_sets(losses, labels, count=count, sizes=sizes, seed=settings.seed)
    ]


def _reference_pool(run: Run, references: Iterable[Folder]) -> ReferencePool:
    train, _ = run.data()
    arrays = [folder.tensors("reference") for folder in references]
    names = ("left_out", "log_odds", "calls")
    stacked = {name: np.stack([model[name] for model in arrays]) for name in names}
    return ReferencePool(train.ids, train.labels.numpy(), **stacked)


def _retraining(references: Sequence[Folder]) -> dict[str, float]:
    training = [folder.document("training") for folder in references]
    return {name: float(np.median([facts[name] for facts in training])) for name in training[0]}


def _result(forget_set: ForgetSet, unlearned: Folder, table: ScoreTable, pool: ReferencePool) -> TrialResult:
    """The result of a trial or of an unlearned run."""
    rows = read_measurements(unlearned)
    criterion = criterion_for(len(forget_set.ids), pool.expect(forget_set.ids))
    _, values = curve(rows, criterion.metric)
    if not values:
        raise InputError(
            f"{unlearned.path} must have measured {criterion.metric} while it was unlearned; it did not."
        )
    _, accuracy = curve(rows, "test")
    duration = criterion.time(rows)
    difficulty = difficulty_of(forget_set.ids, table, done=criterion.is_close(values[0]))
    return TrialResult(
        CalibrationRun(forget_set.name, difficulty, duration.value, duration.reached),
        criterion.metric,
        accuracy[-1] - accuracy[0] if accuracy else 0.0,
        unlearned.document("timing")["seconds_per_step"] if unlearned.has("timing.json") else None,
    )


def _result_of_own_run(
    unlearned: Run, run: Run, settings: CalibrationSettings, table: ScoreTable, pool: ReferencePool
) -> TrialResult:
    """Refuses a run that was not unlearned from this one as requests will be."""
    unlearning, path = unlearned.unlearning, unlearned.folder.path
    if unlearning.get("parent") != run.folder.digest():
        raise InputError(f"{path} must be unlearned from {run.folder.path} to calibrate it; it was not.")
    if unlearning["method"] != settings.method:
        raise InputError(f"{path} must be unlearned by {settings.method}; it was by {unlearning['method']}.")
    used = unlearning["recipe"] | unlearning["options"]
    for name, value in settings.options.items():
        if used.get(name) != value:
            raise InputError(
                f"{path} must be unlearned with {name} = {value}, as requests will be; it was with {used.get(name)}."
            )
    ids = np.setdiff1d(unlearned.forgotten, run.forgotten)
    return _result(ForgetSet(path.name, ids), unlearned.folder, table, pool)
