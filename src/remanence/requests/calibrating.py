"""Calibrate a run: train reference models, and unlearn forget sets from easy to hard against them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remanence.audit import evaluate
from remanence.data import Split
from remanence.errors import InputError, RunFolderError
from remanence.experiments import (
    Evaluations,
    curve,
    half_of,
    read_measurements,
    train_without,
    unlearn_and_measure,
)
from remanence.experiments.relearning import constant_rate
from remanence.experiments.unlearn import begin_unlearning
from remanence.forecast import CalibrationRun, ReferencePool, difficulty_of
from remanence.requests.calibration import (
    AUTO,
    FOLDER,
    Calibration,
    CalibrationSettings,
    TrialResult,
    with_targets,
)
from remanence.requests.calibration_sets import draw_calibration_sets
from remanence.requests.criterion import (
    SMALL,
    STOPPING_HALF,
    Criterion,
    criterion_for,
    monitored_settings,
    stopping_split,
)
from remanence.requests.method_choice import came_back
from remanence.requests.reference_folds import assign_folds
from remanence.requests.request import model_hash
from remanence.requests.verdict import SIGNALS
from remanence.requests.verdict_signals import VERDICT_HALF, signals_of, stopping_outputs
from remanence.scores import ScoreTable, score_table
from remanence.stages import Read, Stage, Store, run_stages
from remanence.storage import SEAL, Draft, Folder
from remanence.storage.lock import exclusive
from remanence.tasks import Recipe, derive_seed
from remanence.training import Run, RunReference, Training
from remanence.types import ForgetSet, as_ids, positions_of
from remanence.unlearning import FoldTargets, outputs_on

_WORK = ".calibrating"
_EPOCHS_AFTER = 3
"""Epochs on retained data after which a set must still be forgotten."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceModel(Stage):
    """A model trained without one fold of the data, the one with this index."""

    kind = "reference"
    version = 6

    run: RunReference
    models: int
    index: int
    seed: int

    def compute(self, draft: Draft, read: Read) -> None:
        """Train it; write what the criterion and the verdict read on the examples that it left out."""
        run = self.run.open()
        task, losses = run.task, score_table(run.trace(), ["privacy_loss"]).column("privacy_loss")
        by_row = losses.values[positions_of(task.train.ids, losses.ids, what="the trace")]
        left_out = assign_folds(task.train.strata, self.models, seed=self.seed, losses=by_row)[self.index]
        fold = ForgetSet("fold", task.train.ids[left_out])
        started = time.perf_counter()
        model, steps = train_without(task, fold.ids, seed=derive_seed(self.seed, "fold", self.index))
        seconds = time.perf_counter() - started
        split = task.split(fold)
        evaluation, unseen = (evaluate(model, half_of(split, half)) for half in (STOPPING_HALF, VERDICT_HALF))
        signals = {f"verdict_{name}": values for name, values in signals_of(unseen).items()}
        arrays = {"left_out": left_out}
        for name, values in (stopping_outputs(evaluation) | signals).items():
            arrays[name] = np.zeros(len(left_out))
            arrays[name][left_out] = values
        draft.tensors("reference", arrays)
        outputs = outputs_on(model, split.forget)
        if outputs is not None:
            draft.tensors("outputs", {"outputs": outputs.float().numpy()})
        draft.document("training", {"steps": steps, "seconds": seconds, "test": evaluation.test.accuracy})


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationTrial(Stage):
    """One forget set, unlearned until the criterion of the reference models holds or the budget ends.

    With `train_on`, a set that is forgotten is tested again after three epochs on retained data.
    """

    kind = "calibration-trial"
    version = 8

    references: tuple[ReferenceModel, ...]
    run: RunReference
    name: str
    ids: tuple[int | str, ...]
    method: str
    options: Mapping[str, Any]
    budget: int
    seed: int
    train_on: bool = False

    @property
    def forget_set(self) -> ForgetSet:
        return ForgetSet(self.name, as_ids(self.ids))

    def compute(self, draft: Draft, read: Read) -> None:
        """Unlearn the set; write the measurements, the seconds per step, and whether it stays forgotten."""
        run = self.run.open()
        split = run.split(self.forget_set)
        references = [read(reference) for reference in self.references]
        criterion = criterion_for(len(self.ids), _reference_pool(run, references).expect(split.forget.ids))
        with tempfile.TemporaryDirectory() as folder:
            targets = Path(folder) / "targets"
            if self.method == "out_of_fold" and (made := _fold_targets(run, references)) is not None:
                made.write(targets)
            options = with_targets(self.method, self.options, targets)
            settings = monitored_settings(run, self.method, options, self.budget, self.seed)
            _, training, total = begin_unlearning(run, split, settings)
        evaluations = Evaluations(stopping_split(split, self.seed), settings.metrics, settings.at, self.seed)
        started = time.perf_counter()
        trajectory = unlearn_and_measure(training, evaluations, steps=total, until=criterion.holds)
        seconds = time.perf_counter() - started
        if trajectory.diverged is not None:
            raise trajectory.diverged
        draft.rows("measurements", map(asdict, trajectory.rows))
        reached = self.train_on and criterion.holds(trajectory.rows)
        recipe = run.settings.recipe
        stays = _stays(training, split, recipe, criterion, evaluations) if reached else None
        draft.document("timing", {"seconds_per_step": seconds / max(1, trajectory.last_step), "stays": stays})


def calibrate(
    run: Run,
    settings: CalibrationSettings,
    *,
    workers: int,
    executor: str = "process",
    address: str | None = None,
    own: Sequence[Run] = (),
    on_start: Callable[[list[Stage], list[Stage]], None] = lambda reused, todo: None,
    on_done: Callable[[Stage], None] = lambda stage: None,
) -> Calibration:
    """Train the reference pool and unlearn the forget sets. If interrupted, the next call uses the finished stages.

    Args:
        run: a trained run with a trace.
        settings: how to calibrate.
        workers: number of processes.
        executor: `process` for processes of this machine, or `ray`.
        address: address of a running Ray cluster; by default Ray is started on this machine.
        own: runs that were already unlearned from this one; they count as further trials.
        on_start: called with the finished stages and those to compute.
        on_done: called after each computed stage.
    """
    processes = run.workers(workers)
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
        run_stages(
            trials,
            store,
            workers=processes,
            executor=executor,
            address=address,
            on_start=on_start,
            on_done=on_done,
        )
        models = [store.get(stage) for stage in references]
        pool = _reference_pool(run, models)
        results = [_result(trial.forget_set, trial.method, store.get(trial), table, pool) for trial in trials]
        results += [_result_of_own_run(unlearned, run, settings, table, pool) for unlearned in own]
        calibration = Calibration(
            settings, pool, results, _retraining(models), targets=_fold_targets(run, models)
        )
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
    labels = run.data()[0].take(losses.ids).strata
    large = (settings.sizes[0], min(settings.sizes[1], len(losses.ids) // 4))
    return [
        CalibrationTrial(
            references=references,
            run=run.reference,
            name=forget_set.name,
            ids=tuple(forget_set.ids.tolist()),
            method=method,
            options=settings.options_of(method, run),
            train_on=settings.method == AUTO,
            budget=settings.budget,
            seed=settings.seed,
            cost=0.3,
        )
        for method in _usable_methods(run, settings)
        for count, sizes in ((settings.sets, large), (settings.small, (1, SMALL - 1)))
        for forget_set in draw_calibration_sets(losses, labels, count=count, sizes=sizes, seed=settings.seed)
    ]


def _usable_methods(run: Run, settings: CalibrationSettings) -> tuple[str, ...]:
    """The methods to calibrate, without targets from models whose outputs are not numbers."""
    train = run.data()[0]
    if settings.method != AUTO or outputs_on(run.model(), train.take(train.ids[:1])) is not None:
        return settings.methods
    return tuple(method for method in settings.methods if method != "out_of_fold")


def _reference_pool(run: Run, references: Iterable[Folder]) -> ReferencePool:
    train, _ = run.data()
    arrays = [folder.tensors("reference") for folder in references]
    stacked = {name: np.stack([model[name] for model in arrays]) for name in arrays[0]}
    signals = {name: stacked.pop(f"verdict_{name}") for name in SIGNALS if f"verdict_{name}" in stacked}
    return ReferencePool(train.ids, train.strata, **stacked, signals=signals)


def _fold_targets(run: Run, references: Sequence[Folder]) -> FoldTargets | None:
    """The mean outputs of the reference models on what they left out; None if their outputs are not numbers."""
    if not all(folder.has("outputs.safetensors") for folder in references):
        return None
    return FoldTargets.averaged(
        run.data()[0],
        (
            (folder.tensors("reference")["left_out"], torch.from_numpy(folder.tensors("outputs")["outputs"]))
            for folder in references
        ),
    )


def _stays(
    training: Training, split: Split, recipe: Recipe, criterion: Criterion, evaluations: Evaluations
) -> bool:
    """Whether the examples stay forgotten when the model is trained on retained data for three epochs."""
    seed, longer = derive_seed(training.seed, "after"), constant_rate(recipe, _EPOCHS_AFTER)
    further = Training(training.model, split.retain, longer, seed=seed)
    rows = unlearn_and_measure(further, replace(evaluations, steps={further.total_steps})).rows
    _, values = curve(rows, criterion.metric)
    return bool(values) and not came_back(criterion, values[-1])


def _retraining(references: Sequence[Folder]) -> dict[str, float]:
    training = [folder.document("training") for folder in references]
    return {name: float(np.median([facts[name] for facts in training])) for name in training[0]}


def _result(
    forget_set: ForgetSet, method: str, unlearned: Folder, table: ScoreTable, pool: ReferencePool
) -> TrialResult:
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
    timing = unlearned.document("timing") if unlearned.has("timing.json") else {}
    return TrialResult(
        CalibrationRun(forget_set.name, difficulty, duration.value, duration.reached),
        criterion.metric,
        accuracy[-1] - accuracy[0] if accuracy else 0.0,
        timing.get("seconds_per_step"),
        method,
        timing.get("stays"),
    )


def _result_of_own_run(
    unlearned: Run, run: Run, settings: CalibrationSettings, table: ScoreTable, pool: ReferencePool
) -> TrialResult:
    """Refuses a run that was not unlearned from this one as requests will be."""
    unlearning, path = unlearned.unlearning, unlearned.folder.path
    if unlearning.get("parent") != run.folder.digest():
        raise InputError(f"{path} must be unlearned from {run.folder.path} to calibrate it; it was not.")
    if unlearning["method"] not in settings.methods:
        methods = " or ".join(settings.methods)
        raise InputError(f"{path} must be unlearned by {methods}; it was by {unlearning['method']}.")
    used = unlearning["recipe"] | unlearning["options"]
    for name, value in settings.options_of(unlearning["method"], run).items():
        if used.get(name) != value:
            raise InputError(
                f"{path} must be unlearned with {name} = {value}, as requests will be; it was with {used.get(name)}."
            )
    ids = np.setdiff1d(unlearned.forgotten, run.forgotten)
    return _result(ForgetSet(path.name, ids), unlearning["method"], unlearned.folder, table, pool)
