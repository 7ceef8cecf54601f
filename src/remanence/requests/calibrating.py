"""Calibrate a run: train the reference pool and unlearn forget sets from easy to hard."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

import numpy as np

from remanence.errors import InputError, RunFolderError
from remanence.experiments import curve, read_measurements
from remanence.forecast import CalibrationRun, ReferencePool, difficulty_of
from remanence.requests.calibration import FOLDER, Calibration, CalibrationSettings, TrialResult
from remanence.requests.calibration_sets import draw_calibration_sets
from remanence.requests.calibration_stages import CalibrationTrial, ReferenceModel, pool_from
from remanence.requests.criterion import SMALL, criterion_for
from remanence.requests.request import model_hash
from remanence.scores import ScoreTable, score_table
from remanence.stages import Stage, Store, run_stages
from remanence.storage import SEAL
from remanence.storage.lock import exclusive
from remanence.training import Run
from remanence.types import ForgetSet, Measurement

_WORK = ".calibrating"


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
        calibration = _collect(run, settings, table, store, references, trials, own)
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
        for forget_set in _forget_sets(run, settings, table)
    ]


def _forget_sets(run: Run, settings: CalibrationSettings, table: ScoreTable) -> list[ForgetSet]:
    losses = table.column("privacy_loss")
    labels = run.data()[0].take(losses.ids).labels.numpy()
    large = (settings.sizes[0], min(settings.sizes[1], len(losses.ids) // 4))
    return [
        forget_set
        for count, sizes in ((settings.sets, large), (settings.small, (1, SMALL - 1)))
        for forget_set in draw_calibration_sets(losses, labels, count=count, sizes=sizes, seed=settings.seed)
    ]


def _collect(
    run: Run,
    settings: CalibrationSettings,
    table: ScoreTable,
    store: Store,
    references: Sequence[ReferenceModel],
    trials: Sequence[CalibrationTrial],
    own: Sequence[Run],
) -> Calibration:
    models = [store.get(stage) for stage in references]
    pool = pool_from(run, models)
    results = []
    for trial in trials:
        artifact = store.get(trial)
        seconds = artifact.document("timing")["seconds_per_step"]
        results.append(_result(trial.forget_set, read_measurements(artifact), table, pool, seconds))
    results += [_result_of_own_run(unlearned, run, settings, table, pool) for unlearned in own]
    training = [model.document("training") for model in models]
    retraining = {
        name: float(np.median([facts[name] for facts in training])) for name in ("steps", "seconds", "test")
    }
    return Calibration(settings, pool, results, retraining)


def _result(
    forget_set: ForgetSet,
    rows: Sequence[Measurement],
    table: ScoreTable,
    pool: ReferencePool,
    seconds_per_step: float | None,
) -> TrialResult:
    criterion = criterion_for(len(forget_set.ids), pool.expect(forget_set.ids))
    _, values = curve(rows, criterion.metric)
    if not values:
        raise InputError(
            f"{forget_set.name} must have measured {criterion.metric} while it was unlearned; it did not."
        )
    _, accuracy = curve(rows, "test")
    difficulty = difficulty_of(forget_set.ids, table, done=criterion.is_close(values[0]))
    duration = criterion.time(rows)
    return TrialResult(
        CalibrationRun(forget_set.name, difficulty, duration.value, duration.reached),
        criterion.metric,
        accuracy[-1] - accuracy[0] if accuracy else 0.0,
        seconds_per_step,
    )


def _result_of_own_run(
    unlearned: Run, run: Run, settings: CalibrationSettings, table: ScoreTable, pool: ReferencePool
) -> TrialResult:
    _check_own_run(unlearned, run, settings)
    ids = np.setdiff1d(unlearned.forgotten, run.forgotten)
    rows = read_measurements(unlearned.folder)
    return _result(ForgetSet(unlearned.folder.path.name, ids), rows, table, pool, None)


def _check_own_run(unlearned: Run, run: Run, settings: CalibrationSettings) -> None:
    """Refuse a run that was not unlearned from this one as requests will be."""
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
