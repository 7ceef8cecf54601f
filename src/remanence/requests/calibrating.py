"""Calibrate a run: train reference models, and unlearn forget sets from easy to hard against them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from remanence.experiments import curve, read_measurements
from remanence.forecast import CalibrationRun, difficulty_of
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
)
from remanence.requests.calibration_extension import extended, put_back, replace_folder
from remanence.requests.calibration_sets import draw_calibration_sets, draw_levels
from remanence.requests.calibration_stages import (
    CalibrationTrial,
    ReferenceModel,
    fold_targets,
    reference_pool,
)
from remanence.requests.criterion import Criterion
from remanence.requests.request import model_hash
from remanence.requests.routing import choose_routing, hard_from
from remanence.scores import ScoreTable, score_table
from remanence.stages import Stage, Store, run_stages
from remanence.storage import Folder, open_folder
from remanence.storage.lock import exclusive
from remanence.training import Run
from remanence.types import ForgetSet
from remanence.unlearning import FoldTargets, has_units, outputs_on

_WORK = ".calibrating"


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
        on_start: called with the finished stages and those to compute; several times for `auto`.
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
            results = kept + self._tried_levels(settings)
            routing = choose_routing(results, self._retraining()["steps"], self._hard)
            settings = replace(settings, options=routing.options())
        method = self._method(settings)
        known = {trial.run.name for trial in kept if trial.method == method}
        sets = [forget_set for forget_set in self._sets() if forget_set.name not in known]
        results = results + self._results([(method, forget_set) for forget_set in sets], settings)
        pool = reference_pool(self.run, self._folders, self.earlier)
        return Calibration(settings, pool, results, self._retraining(), targets=self._targets)

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

    @cached_property
    def _targets(self) -> FoldTargets | None:
        return fold_targets(self.run, self._folders, self.earlier)

    @cached_property
    def _hard(self) -> float | None:
        """The privacy loss from which outputs of the reference models are no targets, as they are wrong too often."""
        if self._targets is None or not self.run.data()[0].has_classes:
            return None
        return hard_from(self._targets)

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

    def _tried_levels(self, settings: CalibrationSettings) -> list[TrialResult]:
        """The sets of one difficulty, each by the methods that may be used on it.

        Sets that look forgotten before unlearning are not tried any further, and hard ones not with outputs. On the
        others, ways to draw weights anew are tried to compare their steps; that they last is tested where they are
        used.
        """
        losses = self.table.column("privacy_loss")
        sets = draw_levels(losses, count=LEVELS, size=max(self.settings.sizes))
        hard = [level for level in sets if self._is_hard(level)]
        others = [level for level in sets if not self._is_hard(level)]
        first, *anew = self._usable
        tried = self._results([(first, level) for level in others], settings)
        known = [level for level, trial in zip(others, tried, strict=True) if not trial.run.difficulty.done]
        compared = [(method, level) for method in anew for level in known]
        used = [(method, level) for method in anew for level in hard]
        return [
            *tried,
            *self._results(compared, settings, train_on=self._targets is None),
            *self._results(used, settings),
        ]

    def _is_hard(self, level: ForgetSet) -> bool:
        return self._hard is not None and difficulty_of(level.ids, self.table).losses["median"] >= self._hard

    def _results(
        self, sets: Sequence[tuple[str, ForgetSet]], settings: CalibrationSettings, *, train_on: bool = True
    ) -> list[TrialResult]:
        """Unlearn sets, each by a method; for `auto` with a test that they stay forgotten, unless it is left out."""
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
                train_on=train_on and settings.method == AUTO,
                budget=settings.budget,
                seed=settings.seed,
                cost=0.3,
            )
            for method, forget_set in sets
        ]
        self.compute(trials)
        return [_result(trial, self.store.get(trial), self.table) for trial in trials]


def _result(trial: CalibrationTrial, unlearned: Folder, table: ScoreTable) -> TrialResult:
    rows, timing = read_measurements(unlearned), unlearned.document("timing")
    criterion = Criterion(**timing["criterion"])
    steps, values = curve(rows, criterion.metric)
    _, accuracy = curve(rows, "test")
    duration, ids = criterion.time(rows), trial.forget_set.ids
    difficulty = difficulty_of(ids, table, done=criterion.is_close(values[0]), way=timing["way"])
    return TrialResult(
        CalibrationRun(trial.name, difficulty, duration.value, duration.reached),
        accuracy[-1] - accuracy[0] if accuracy else 0.0,
        timing["seconds_per_step"],
        trial.method,
        timing["stays"],
        steps[-1],
    )
