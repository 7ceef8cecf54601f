"""Calibrate a run: train reference models, and unlearn forget sets from easy to hard against them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from remanence.audit import evaluate
from remanence.data import Split
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
    LEVEL_METHODS,
    LEVELS,
    ROUTED,
    Calibration,
    CalibrationSettings,
    TrialResult,
    find_calibration,
    read_calibration,
    with_targets,
    without_targets,
)
from remanence.requests.calibration_extension import extended, put_back, replace_folder
from remanence.requests.calibration_sets import draw_calibration_sets, draw_levels
from remanence.requests.criterion import (
    STOPPING_HALF,
    Criterion,
    criterion_for,
    monitored_settings,
    stopping_split,
)
from remanence.requests.method_choice import came_back
from remanence.requests.reference_folds import assign_folds
from remanence.requests.request import model_hash
from remanence.requests.routing import choose_routing
from remanence.requests.verdict import SIGNALS
from remanence.requests.verdict_signals import (
    VERDICT_HALF,
    excess_context,
    signals_of,
    stopping_excess,
    stopping_outputs,
)
from remanence.scores import ScoreTable, score_table
from remanence.stages import Read, Stage, Store, run_stages
from remanence.storage import Draft, Folder, open_folder
from remanence.storage.lock import exclusive
from remanence.tasks import Recipe, derive_seed
from remanence.training import Run, RunReference, Training
from remanence.types import ForgetSet, as_ids, positions_of
from remanence.unlearning import FoldTargets, has_units, outputs_on

_WORK = ".calibrating"
Floats = NDArray[np.float64]
_EPOCHS_AFTER = 3
"""Epochs on retained data after which a set must still be forgotten."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceModel(Stage):
    """A model trained without one fold of the data, the one with this index.

    Args:
        run: the run that is calibrated.
        models: number of models that share the data between them.
        index: index of this one.
        first: number of models that the run had before these.
        seed: random seed of the calibration.
    """

    kind = "reference"
    version = 7

    run: RunReference
    models: int
    index: int
    first: int
    seed: int

    def compute(self, draft: Draft, read: Read) -> None:
        """Train it; write what the criterion and the verdict read on the examples that it left out."""
        run = self.run.open()
        task = run.task
        seed = derive_seed(self.seed, "folds", self.first)
        folds = assign_folds(task.train.strata, self.models, seed=seed, losses=_losses(run))
        left_out = folds[self.index]
        fold = ForgetSet("fold", task.train.ids[left_out])
        started = time.perf_counter()
        model, steps = train_without(
            task, fold.ids, seed=derive_seed(self.seed, "fold", self.first + self.index)
        )
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

    With `train_on`, a set that is forgotten is tested again after three epochs on retained data. `earlier` is the
    digest of the calibration that is extended, whose models count too; empty without one.
    """

    kind = "calibration-trial"
    version = 11

    references: tuple[ReferenceModel, ...]
    run: RunReference
    earlier: str
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
        earlier = read_calibration(run) if self.earlier else None
        watched = stopping_split(split, self.seed)
        excess = stopping_excess(run.model(), watched, _reference_pool(run, references, earlier))
        criterion = criterion_for(excess.error)
        with tempfile.TemporaryDirectory() as folder:
            targets = Path(folder) / "targets"
            made = _fold_targets(run, references, earlier)
            options = with_targets(self.method, self.options, targets)
            if made is None:
                options = without_targets(options)
            elif "targets" in options:
                made.write(targets)
            settings = monitored_settings(run, self.method, options, self.budget, self.seed)
            _, training, total = begin_unlearning(run, split, settings)
        evaluations = Evaluations(watched, settings.metrics, settings.at, self.seed, excess_context(excess))
        started = time.perf_counter()
        trajectory = unlearn_and_measure(training, evaluations, steps=total, until=criterion.holds)
        seconds = time.perf_counter() - started
        if trajectory.diverged is not None:
            raise trajectory.diverged
        draft.rows("measurements", map(asdict, trajectory.rows))
        reached = self.train_on and criterion.holds(trajectory.rows)
        recipe = run.settings.recipe
        stays = _stays(training, split, recipe, criterion, evaluations) if reached else None
        per_step = seconds / max(1, trajectory.last_step)
        document = {"seconds_per_step": per_step, "stays": stays, "criterion": asdict(criterion)}
        draft.document("timing", document)


def calibrate(
    run: Run,
    settings: CalibrationSettings,
    *,
    workers: int,
    executor: str = "process",
    address: str | None = None,
    on_start: Callable[[list[Stage], list[Stage]], None] = lambda reused, todo: None,
    on_done: Callable[[Stage], None] = lambda stage: None,
) -> Calibration:
    """Train the reference pool and unlearn the forget sets. If interrupted, the next call uses the finished stages.

    A run that is calibrated already is extended to as many models and sets as the settings ask for; what is there is
    kept. After a request, the models that were trained on the removed examples are replaced, and the sets are kept.

    Args:
        run: a trained run with a trace.
        settings: how to calibrate.
        workers: number of processes.
        executor: `process` for processes of this machine, or `ray`.
        address: address of a running Ray cluster; by default Ray is started on this machine.
        on_start: called with the finished stages and those to compute; twice for `auto`.
        on_done: called after each computed stage.
    """
    processes, path = run.workers(workers), run.folder.path
    with exclusive(path / f"{_WORK}.lock", f"Another process is calibrating {path}; wait for it."):
        put_back(path / FOLDER, path / _WORK)
        earlier = find_calibration(run)
        settings = settings.resolved(run) if earlier is None else extended(earlier, settings, path)
        store = Store(path / _WORK)
        store.sweep()

        def compute(stages: Sequence[Stage]) -> None:
            run_stages(
                stages,
                store,
                workers=processes,
                executor=executor,
                address=address,
                on_start=on_start,
                on_done=on_done,
            )

        work = _Work(run, settings, earlier, score_table(run.trace()), store, compute)
        calibration = work.calibration()
        replace_folder(path / FOLDER, path / _WORK, lambda to: calibration.write(to, model_hash(run)))
    return calibration


@dataclass(frozen=True, eq=False)
class _Work:
    """The stages of a calibration.

    Args:
        run: the run.
        settings: how to calibrate.
        earlier: the calibration to extend.
        table: the scores of the run's examples.
        store: what is finished.
        compute: computes stages.
    """

    run: Run
    settings: CalibrationSettings
    earlier: Calibration | None
    table: ScoreTable
    store: Store
    compute: Callable[[Sequence[Stage]], None]

    def calibration(self) -> Calibration:
        """Compute what is missing."""
        kept = [] if self.earlier is None else list(self.earlier.trials)
        settings, results = self.settings, kept
        if settings.method == AUTO and not settings.options:
            results = kept + self._results(self._levels(), settings)
            options = choose_routing(results, self._retraining()["steps"]).options()
            settings = replace(settings, options=options)
        method = self._method(settings)
        known = {trial.run.name for trial in kept if trial.method == method}
        sets = [forget_set for forget_set in self._sets() if forget_set.name not in known]
        results = results + self._results([(method, forget_set) for forget_set in sets], settings)
        targets = _fold_targets(self.run, self._folders, self.earlier)
        pool = _reference_pool(self.run, self._folders, self.earlier)
        return Calibration(settings, pool, results, self._retraining(), targets=targets)

    @cached_property
    def _references(self) -> tuple[ReferenceModel, ...]:
        first = 0 if self.earlier is None or self.earlier.inherited else len(self.earlier.pool.left_out)
        count = self.settings.models - first
        return tuple(
            ReferenceModel(
                run=self.run.reference, models=count, index=index, first=first, seed=self.settings.seed
            )
            for index in range(count)
        )

    @cached_property
    def _folders(self) -> list[Folder]:
        """The reference models, which are trained here unless they are needed by a trial first."""
        self.compute(self._references)
        return [self.store.get(stage) for stage in self._references]

    def _retraining(self) -> dict[str, float]:
        """Medians over the reference models."""
        training = [folder.document("training") for folder in self._folders]
        if not training and self.earlier is not None:
            return dict(self.earlier.retraining)
        return {name: float(np.median([facts[name] for facts in training])) for name in training[0]}

    def _method(self, settings: CalibrationSettings) -> str:
        """The method of requests. Without outputs to draw examples towards, `auto` draws weights anew."""
        if settings.method != AUTO:
            return settings.method
        return ROUTED if "out_of_fold" in self._usable else str(settings.options["harder"])

    @cached_property
    def _usable(self) -> tuple[str, ...]:
        """The methods that this model allows: out_of_fold needs outputs that are numbers, reset needs units."""
        model, train = self.run.model(), self.run.data()[0]
        refused = {"out_of_fold"} if outputs_on(model, train.take(train.ids[:1])) is None else set()
        refused |= set() if has_units(model) else {"reset"}
        return tuple(method for method in LEVEL_METHODS if method not in refused)

    def _sets(self) -> list[ForgetSet]:
        losses = self.table.column("privacy_loss")
        sizes = (self.settings.sizes[0], min(self.settings.sizes[1], len(losses.ids) // 4))
        labels = self.run.data()[0].take(losses.ids).strata
        settings = self.settings
        return draw_calibration_sets(losses, labels, count=settings.sets, sizes=sizes, seed=settings.seed)

    def _levels(self) -> list[tuple[str, ForgetSet]]:
        losses = self.table.column("privacy_loss")
        size, seed = max(self.settings.sizes) // 2, self.settings.seed
        sets = draw_levels(losses, count=LEVELS, size=size, seed=seed)
        return [(method, forget_set) for method in self._usable for forget_set in sets]

    def _results(
        self, sets: Sequence[tuple[str, ForgetSet]], settings: CalibrationSettings
    ) -> list[TrialResult]:
        """Unlearn sets, each by a method."""
        assert settings.budget is not None  # `resolved` sets it
        kept = self.earlier is not None and not self.earlier.inherited
        trials = [
            CalibrationTrial(
                references=self._references,
                run=self.run.reference,
                earlier=open_folder(self.run.folder.path / FOLDER).digest() if kept else "",
                name=forget_set.name,
                ids=tuple(forget_set.ids.tolist()),
                method=method,
                options=settings.options_of(method, self.run),
                train_on=settings.method == AUTO,
                budget=settings.budget,
                seed=settings.seed,
                cost=0.3,
            )
            for method, forget_set in sets
        ]
        self.compute(trials)
        return [_result(trial, self.store.get(trial), self.table) for trial in trials]


def _reference_pool(run: Run, references: Sequence[Folder], earlier: Calibration | None) -> ReferencePool:
    """The models of the folders, and those of the calibration that is extended."""
    kept = None if earlier is None or earlier.inherited else earlier.pool
    if not references and kept is not None:
        return kept
    train, _ = run.data()
    arrays = [folder.tensors("reference") for folder in references]
    stacked = {name: np.stack([model[name] for model in arrays]) for name in arrays[0]}
    signals = {name: stacked.pop(f"verdict_{name}") for name in SIGNALS if f"verdict_{name}" in stacked}
    pool = ReferencePool(train.ids, train.strata, losses=_losses(run), **stacked, signals=signals)
    return pool if kept is None else kept.joined(pool)


def _losses(run: Run) -> Floats:
    """The privacy losses of the training examples, in their order."""
    scores = score_table(run.trace(), ["privacy_loss"]).column("privacy_loss")
    return scores.values[positions_of(run.data()[0].ids, scores.ids, what="the trace")]


def _fold_targets(run: Run, references: Sequence[Folder], earlier: Calibration | None) -> FoldTargets | None:
    """The outputs of reference models on what they left out; None if their outputs are not numbers."""
    if earlier is not None and not earlier.inherited:
        return earlier.targets
    if not all(folder.has("outputs.safetensors") for folder in references):
        return None
    return FoldTargets.drawn(
        run.data()[0],
        (
            (folder.tensors("reference")["left_out"], torch.from_numpy(folder.tensors("outputs")["outputs"]))
            for folder in references
        ),
        losses=_losses(run),
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


def _result(trial: CalibrationTrial, unlearned: Folder, table: ScoreTable) -> TrialResult:
    rows, timing = read_measurements(unlearned), unlearned.document("timing")
    criterion = Criterion(**timing["criterion"])
    _, values = curve(rows, criterion.metric)
    _, accuracy = curve(rows, "test")
    duration, ids = criterion.time(rows), trial.forget_set.ids
    difficulty = difficulty_of(ids, table, done=criterion.is_close(values[0]))
    return TrialResult(
        CalibrationRun(trial.name, difficulty, duration.value, duration.reached),
        accuracy[-1] - accuracy[0] if accuracy else 0.0,
        timing["seconds_per_step"],
        trial.method,
        timing["stays"],
    )
