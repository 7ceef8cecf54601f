"""What a run must know before requests come: a reference pool, and how long sets of all kinds took to unlearn."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from remanence.errors import InputError, RunFolderError
from remanence.forecast import (
    ENOUGH,
    CalibrationRun,
    Difficulty,
    Expectation,
    Forecaster,
    ReferencePool,
    difficulty_of,
)
from remanence.requests.criterion import SMALL, Criterion, Metric, criterion_for
from remanence.requests.request import trace_of
from remanence.requests.sets import calibration_sets
from remanence.requests.stages import REFERENCE, TRIAL, pool_from
from remanence.scores import ScoreTable, score_table
from remanence.stages import Stage, Store, run_stages
from remanence.storage import SEAL, Draft, Folder, create, open_folder
from remanence.storage.lock import exclusive
from remanence.training import Run
from remanence.types import ForgetSet, Ids, as_ids
from remanence.unlearning import full_names, make_method

FOLDER = "calibration"
_WORK = ".calibrating"
_WEIGHT_DECAY = 1e-3
"""For unlearning a model that was trained without any."""


@dataclass(frozen=True)
class CalibrationSettings:
    """What a calibration does.

    Args:
        method: how requests will be unlearned.
        options: its hyperparameters; unless given, learning rate as in training and twice the weight decay, which is
            what makes a model let go of examples that it no longer sees.
        sets: forget sets to unlearn.
        small: further ones of fewer than 20 examples, for requests as small as that.
        sizes: smallest and largest of the sets.
        models: reference models.
        budget: steps after which a set is given up; as many as training took by default, when retraining is cheaper.
        seed: of everything random.
    """

    method: str = "finetune"
    options: Mapping[str, Any] = field(default_factory=dict)
    sets: int = 40
    small: int = 20
    sizes: tuple[int, int] = (20, 100)
    models: int = 40
    budget: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sets < ENOUGH:
            raise InputError(f"`sets` must be at least {ENOUGH}, or an interval is luck; got {self.sets}.")
        if self.small and self.small < ENOUGH:
            raise InputError(f"`small` must be 0 or at least {ENOUGH}; got {self.small}.")
        if self.sizes[0] < SMALL:
            raise InputError(
                f"`sizes` must begin at {SMALL} or above (`small` is for less); got {self.sizes}."
            )
        if self.budget is not None and self.budget < 1:
            raise InputError(f"`budget` must be at least 1 step; got {self.budget}.")
        if self.method == "retrain":
            raise InputError("`retrain` needs no calibration: it takes what training took.")

    def resolved(self, run: Run) -> CalibrationSettings:
        """With everything that depends on the run filled in."""
        recipe = run.settings.recipe
        usual = {
            "learning_rate": recipe.learning_rate,
            "weight_decay": 2 * recipe.weight_decay or _WEIGHT_DECAY,
        }
        options = usual | full_names(self.options)
        make_method(self.method, options, recipe)
        steps = recipe.total_steps(len(run.data()[0]))
        return CalibrationSettings(**{**asdict(self), "options": options, "budget": self.budget or steps})


@dataclass(frozen=True, eq=False)
class Calibration:
    """A finished calibration.

    Args:
        settings: how requests are unlearned, and what was tried.
        pool: what models that never saw an example say of it.
        rows: one a set that was unlearned: difficulty, steps, effect on accuracy.
        retraining: steps and seconds of training anew, on this machine.
        inherited: made on a run before some examples left it.
    """

    settings: CalibrationSettings
    pool: ReferencePool
    rows: Sequence[Mapping[str, Any]]
    retraining: Mapping[str, float]
    inherited: bool = False

    def expect(self, ids: Ids) -> Expectation:
        """What a model never trained on these would show of them."""
        return self.pool.expect(ids)

    def criterion(self, ids: Ids) -> Criterion:
        """When a request for these is done."""
        return criterion_for(len(ids), self.expect(ids))

    def runs(self, metric: Metric) -> list[CalibrationRun]:
        """The sets that were unlearned by one criterion."""
        return [
            CalibrationRun(
                row["name"],
                Difficulty(row["size"], row["losses"], row["proxies"], row["done"]),
                row["steps"],
                row["reached"],
            )
            for row in self.rows
            if row["metric"] == metric
        ]

    @cached_property
    def _forecasters(self) -> dict[str, Forecaster]:
        return {}

    def forecaster(self, metric: Metric) -> Forecaster:
        """The law fitted on those sets; refused where there are too few."""
        if metric not in self._forecasters:
            if not self.runs(metric) and metric == "log_odds":
                raise InputError(
                    f"A request of fewer than {SMALL} ids needs a calibration with small sets; this has none. "
                    "Calibrate anew with --small 20."
                )
            self._forecasters[metric] = Forecaster(self.runs(metric))
        return self._forecasters[metric]

    def seconds_a_step(self) -> float:
        """Of unlearning with its evaluations, on the machine that calibrated."""
        return float(np.median([each for row in self.rows if (each := row["seconds_a_step"]) > 0]))

    def without(self, ids: Ids) -> Calibration:
        """For a run that these examples have left."""
        return Calibration(self.settings, self.pool.without(ids), self.rows, self.retraining, inherited=True)

    def write(self, folder: Path, model: str) -> None:
        """Leave it in a folder of its own, for the model with these weights."""
        with create(folder, "calibration") as draft:
            _fill(draft, self, model)


def calibrate(
    run: Run,
    settings: CalibrationSettings,
    *,
    workers: int,
    own: Sequence[Run] = (),
    on_start: Callable[[list[Stage], list[Stage]], None] = lambda reused, todo: None,
    on_done: Callable[[Stage], None] = lambda stage: None,
) -> Calibration:
    """Train the reference pool and unlearn the sets; what is finished is kept, a killed calibration goes on.

    Args:
        run: a trained run with a trace.
        settings: what to do.
        workers: processes.
        own: runs that the user has unlearned from this one already; they count as further sets.
        on_start: told what is there and what is to be done.
        on_done: told after each piece of work.
    """
    path = run.folder.path
    if (path / FOLDER / SEAL).exists():
        raise RunFolderError(
            f"{path / FOLDER} is there already; delete it to calibrate anew. Nothing was changed."
        )
    settings = settings.resolved(run)
    table = score_table(trace_of(run))
    with exclusive(path / f"{_WORK}.lock", f"Another process is calibrating {path}; wait for it."):
        store = Store(path / _WORK)
        store.sweep()
        references = _references(run, settings)
        sets = _sets(run, settings, table)
        trials = [_trial_stage(run, settings, each, references) for each in sets]
        run_stages(trials, store, workers=workers, on_start=on_start, on_done=on_done)
        pool = pool_from(run, [store.get(stage) for stage in references])
        rows = [_row(each, table, store.get(stage)) for each, stage in zip(sets, trials, strict=True)]
        rows += [_own_row(each, run, settings, table, pool) for each in own]
        facts = [store.get(stage).document("facts") for stage in references]
        retraining = {
            name: float(np.median([each[name] for each in facts])) for name in ("steps", "seconds", "test")
        }
        made = Calibration(settings, pool, rows, retraining)
        made.write(path / FOLDER, model_hash(run))
        shutil.rmtree(path / _WORK)
    return made


def read_calibration(run: Run) -> Calibration:
    """The calibration of a run; another model's is refused."""
    path = run.folder.path / FOLDER
    if not (path / SEAL).exists():
        raise RunFolderError(
            f"{run.folder.path} must be calibrated before requests can be planned; it is not. "
            f"Run `remanence calibrate {run.folder.path}`."
        )
    folder = open_folder(path, "calibration")
    config = folder.config()
    if config["model"] != model_hash(run):
        raise RunFolderError(f"{path} was made for another model than {run.folder.path}; calibrate this one.")
    facts, arrays = folder.document("facts"), folder.tensors("reference")
    pool = ReferencePool(
        as_ids(facts["ids"]), arrays["labels"], arrays["left_out"], arrays["log_odds"], arrays["calls"]
    )
    plain = config["settings"]
    settings = CalibrationSettings(**{**plain, "sizes": tuple(plain["sizes"])})
    return Calibration(settings, pool, folder.rows("runs"), facts["retraining"], config["inherited"])


def model_hash(run: Run) -> str:
    """The SHA-256 of a run's weights: the model's name in every document."""
    return run.folder.files()["weights.safetensors"]


def _fill(draft: Draft, made: Calibration, model: str) -> None:
    draft.config({"model": model, "inherited": made.inherited, "settings": asdict(made.settings)})
    pool = made.pool
    draft.tensors(
        "reference",
        {"labels": pool.labels, "left_out": pool.left_out, "log_odds": pool.log_odds, "calls": pool.calls},
    )
    draft.document("facts", {"retraining": dict(made.retraining), "ids": pool.ids.tolist()})
    draft.rows("runs", made.rows)


def _references(run: Run, settings: CalibrationSettings) -> list[Stage]:
    common = {"run": str(run.folder.path.resolve()), "model": model_hash(run), "models": settings.models}
    cost = 1.0
    return [
        Stage(REFERENCE, common | {"index": i, "seed": settings.seed}, cost=cost)
        for i in range(settings.models)
    ]


def _sets(run: Run, settings: CalibrationSettings, table: ScoreTable) -> list[ForgetSet]:
    losses = table.column("privacy_loss")
    train, _ = run.data()
    labels = train.take(losses.ids).labels.numpy()
    sizes = (settings.sizes[0], min(settings.sizes[1], len(losses.ids) // 4))
    made = calibration_sets(losses, labels, count=settings.sets, sizes=sizes, seed=settings.seed)
    return made + calibration_sets(
        losses, labels, count=settings.small, sizes=(1, SMALL - 1), seed=settings.seed
    )


def _trial_stage(
    run: Run, settings: CalibrationSettings, forget: ForgetSet, references: list[Stage]
) -> Stage:
    params = {
        "run": str(run.folder.path.resolve()),
        "model": model_hash(run),
        "name": forget.name,
        "ids": forget.ids.tolist(),
        "method": settings.method,
        "options": dict(settings.options),
        "budget": settings.budget,
        "seed": settings.seed,
    }
    return Stage(TRIAL, params, tuple(references), cost=0.3)


def _row(forget: ForgetSet, table: ScoreTable, folder: Folder) -> dict[str, Any]:
    """Nothing of it names the set's examples: it stays when some of them leave."""
    difficulty = difficulty_of(forget.ids, table)
    return {"name": forget.name, **asdict(difficulty), **folder.document("outcome")}


def _own_row(
    unlearned: Run, run: Run, settings: CalibrationSettings, table: ScoreTable, pool: ReferencePool
) -> dict[str, Any]:
    made, path = unlearned.unlearning, unlearned.folder.path
    if made.get("parent") != run.folder.digest():
        raise InputError(f"{path} must be unlearned from {run.folder.path} to calibrate it; it was not.")
    if made["method"] != settings.method:
        raise InputError(f"{path} must be unlearned by {settings.method}; it was by {made['method']}.")
    for name, value in settings.options.items():
        found = (made["recipe"] | made["options"]).get(name)
        if found != value:
            raise InputError(
                f"{path} must be unlearned with {name} = {value}, as requests will be; it was with {found}."
            )
    ids = np.setdiff1d(unlearned.forgotten, run.forgotten)
    criterion = criterion_for(len(ids), pool.expect(ids))
    rows = unlearned.folder.rows("measurements")
    if not any(row["metric"] == criterion.metric for row in rows):
        raise InputError(f"{path} must have measured {criterion.metric} as it went; it did not.")
    time = criterion.time(rows)
    accuracy = [row["value"] for row in rows if row["metric"] == "test"] or [0.0]
    start = next(row["value"] for row in rows if row["metric"] == criterion.metric)
    return {
        "name": path.name,
        **asdict(difficulty_of(ids, table)),
        "metric": criterion.metric,
        "done": criterion.close(start),
        "steps": time.value,
        "reached": time.reached,
        "accuracy_change": accuracy[-1] - accuracy[0],
        "seconds_a_step": 0.0,
    }
