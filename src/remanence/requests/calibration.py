"""A calibration: the reference pool of a run, and how long forget sets of all kinds took to unlearn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from remanence.errors import InputError, RunFolderError
from remanence.forecast import (
    ENOUGH,
    CalibrationRun,
    Forecaster,
    ReferencePool,
)
from remanence.requests.calibration_sets import LEVEL
from remanence.requests.reference_folds import FEWEST
from remanence.requests.request import model_hash
from remanence.storage import SEAL, create, open_folder
from remanence.storage.table_reading import read_record
from remanence.training import Run
from remanence.types import Ids, as_ids
from remanence.unlearning import (
    FoldTargets,
    full_names,
    has_fold_targets,
    make_method,
    read_fold_targets,
)
from remanence.unlearning.routed import Routed

FOLDER = "calibration"
AUTO = "auto"
"""The method that decides for each example of a request how it is unlearned."""
ROUTED = "routed"
LEVEL_METHODS = ("out_of_fold", "reset", "shrink_perturb")
"""What `auto` tries on sets of one difficulty each, to decide how each example of a request is unlearned."""
LEVELS = 8
"""Number of these sets."""
_AUTO_OPTIONS: Mapping[str, Mapping[str, Any]] = {"reset": {"distillation": 0.5}}
"""Hyperparameters that differ from a method's defaults: distillation wins accuracy back sooner after a reset."""
_AUTO_BUDGET = 0.5
"""Share of the steps of training after which `auto` gives up."""
_FORMAT = 8
_ARRAYS = ("labels", "losses", "left_out", "log_odds", "calls")
_SIGNAL = "verdict_"
"""Prefix of the arrays that only the verdict reads."""
_WEIGHT_DECAY = 1e-3
"""Weight decay of unlearning when the model was trained with none."""


@dataclass(frozen=True)
class CalibrationSettings:
    """How to calibrate.

    Args:
        method: the method that requests will be unlearned with; `auto` decides for each example how it is unlearned.
        options: its hyperparameters; with `auto` they are found. By default, for another method, the learning rate of
            training and twice its weight decay, which makes a model forget examples that it no longer sees.
        sets: number of forget sets to unlearn.
        sizes: smallest and largest size of the sets.
        models: number of reference models.
        budget: maximum number of unlearning steps; by default the steps of training, beyond which retraining is
            cheaper, and half of them with `auto`: what new weights and as much training have not made a model forget is
            retrained.
        seed: random seed of the folds, the forget sets and the unlearning.
    """

    method: str = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    sets: int = 20
    sizes: tuple[int, int] = (5, 100)
    models: int = 12
    budget: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sets < ENOUGH:
            raise InputError(f"`sets` must be at least {ENOUGH} for a usable interval; got {self.sets}.")
        if self.models < FEWEST:
            raise InputError(
                f"`models` must be at least {FEWEST} for a criterion; got {self.models}. Without a calibration, `plan` "
                "and `forget` work from the trace alone, and nothing can be judged."
            )
        if self.budget is not None and self.budget < 1:
            raise InputError(f"`budget` must be at least 1 step; got {self.budget}.")
        if self.method == "retrain":
            raise InputError("`retrain` needs no calibration: it takes as long as training.")

    def resolved(self, run: Run) -> CalibrationSettings:
        """The same settings with the defaults that depend on the run."""
        if self.method == AUTO and self.options:
            raise InputError(
                f"`options` cannot be given with {AUTO}, which finds them; got {', '.join(self.options)}. Name a "
                "`method`."
            )
        recipe = run.settings.recipe
        options = {} if self.method == AUTO else _default_options(run) | full_names(self.options)
        if self.method != AUTO:
            make_method(self.method, with_targets(self.method, options, Path(FOLDER)), recipe)
        share = _AUTO_BUDGET if self.method == AUTO else 1.0
        steps = max(1, round(share * recipe.total_steps(len(run.data()[0]))))
        return replace(self, options=options, budget=self.budget or steps)

    def options_of(self, method: str, run: Run) -> dict[str, Any]:
        """The hyperparameters of one of the methods."""
        if self.method != AUTO or method == ROUTED:
            return dict(self.options)
        if method == "out_of_fold":
            return {"learning_rate": Routed.gentle * run.settings.recipe.learning_rate}
        return _default_options(run) if method == "finetune" else dict(_AUTO_OPTIONS.get(method, {}))


def with_targets(method: str, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Options with the folder of the fold models' outputs, if the method uses one and none was given."""
    uses = method in ("out_of_fold", ROUTED) or "targets" in options
    given = {name: value for name, value in options.items() if value != ""}
    return {"targets": str(folder.resolve()), **given} if uses else given


def without_targets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for a run that has no outputs of fold models."""
    return {name: value for name, value in options.items() if name != "targets"}


def _default_options(run: Run) -> dict[str, Any]:
    recipe = run.settings.recipe
    return {"learning_rate": recipe.learning_rate, "weight_decay": 2 * recipe.weight_decay or _WEIGHT_DECAY}


@dataclass(frozen=True)
class TrialResult:
    """One forget set that was unlearned. It does not name the examples, so it is kept when some of them are removed.

    Args:
        run: the difficulty of the set, and the steps it took.
        accuracy_change: change of test accuracy.
        seconds_per_step: of unlearning with its evaluations.
        method: the method that it was unlearned with.
        stays: whether it stayed forgotten after three epochs on retained data; None when it was not tried.
        last: the step at which unlearning stopped: that of the evaluation that confirmed it.
    """

    run: CalibrationRun
    accuracy_change: float
    seconds_per_step: float
    method: str
    stays: bool | None = None
    last: int = 0


@dataclass(frozen=True, eq=False)
class Calibration:
    """A finished calibration.

    Args:
        settings: how it was made; requests are unlearned in the same way.
        pool: the reference models.
        trials: the forget sets that were unlearned.
        retraining: steps and seconds of training a reference model, and its test accuracy; medians.
        inherited: whether it was made before examples were removed from the run.
        targets: what the reference models say about the examples that they left out; None if their outputs are not
            numbers.
    """

    settings: CalibrationSettings
    pool: ReferencePool
    trials: Sequence[TrialResult]
    retraining: Mapping[str, float]
    inherited: bool = False
    targets: FoldTargets | None = None

    @cached_property
    def tried(self) -> list[TrialResult]:
        """The sets of all kinds, which were unlearned as requests are."""
        return [trial for trial in self.trials if not trial.run.name.startswith(LEVEL)]

    @property
    def method(self) -> str:
        """The method that requests are unlearned with."""
        return self.tried[0].method

    @property
    def runs(self) -> list[CalibrationRun]:
        """How long the sets of all kinds took."""
        return [trial.run for trial in self.tried]

    @cached_property
    def forecaster(self) -> Forecaster:
        """A forecaster fitted on these runs; refused when there are too few."""
        assert self.settings.budget is not None  # a calibration has resolved settings
        return Forecaster(self.runs, self.settings.budget)

    @property
    def seconds_per_step(self) -> float:
        """The median over the sets of all kinds, on the machine that calibrated."""
        return float(np.median([trial.seconds_per_step for trial in self.tried]))

    def without(self, ids: Ids) -> Calibration:
        """The calibration of a run that these examples are removed from."""
        targets = None if self.targets is None else self.targets.without(ids)
        return replace(self, pool=self.pool.without(ids), inherited=True, targets=targets)

    def write(self, folder: Path, model: str) -> None:
        """Write it into a folder, for the model with these weights."""
        pool = self.pool
        with create(folder, "calibration") as draft:
            draft.config(
                {
                    "format": _FORMAT,
                    "model": model,
                    "inherited": self.inherited,
                    "signals": sorted(pool.signals),
                    "settings": asdict(self.settings),
                }
            )
            signals = {_SIGNAL + name: values for name, values in pool.signals.items()}
            draft.tensors("reference", {name: getattr(pool, name) for name in _ARRAYS} | signals)
            draft.document("facts", {"retraining": dict(self.retraining), "ids": pool.ids.tolist()})
            draft.rows("trials", map(asdict, self.trials))
            if self.targets is not None:
                self.targets.write_into(draft)


@dataclass(frozen=True)
class _Config:
    """What config.toml holds."""

    format: int
    model: str
    inherited: bool
    signals: tuple[Literal["predicted_log_odds", "log_odds"], ...]
    settings: CalibrationSettings


@dataclass(frozen=True)
class _Retraining:
    """Medians over the reference models."""

    steps: float
    seconds: float
    test: float


@dataclass(frozen=True)
class _Facts:
    """What facts.json holds."""

    retraining: _Retraining
    ids: tuple[int | str, ...]


def find_calibration(run: Run) -> Calibration | None:
    """The calibration of a run; None if it has none."""
    return read_calibration(run) if (run.folder.path / FOLDER / SEAL).exists() else None


def read_calibration(run: Run) -> Calibration:
    """The calibration of a run; one that was made for another model is refused."""
    path = run.folder.path / FOLDER
    if not (path / SEAL).exists():
        raise RunFolderError(
            f"{run.folder.path} must be calibrated; it is not. Run `remanence calibrate {run.folder.path}`."
        )
    folder = open_folder(path, "calibration")
    table = folder.config()
    if table.get("format") != _FORMAT:
        raise RunFolderError(
            f"{path} is a calibration of format {str(table.get('format', 1))[:20]}; this version reads {_FORMAT}. "
            "Delete it and calibrate again."
        )
    config = read_record(_Config, table, path / "config.toml")
    if config.model != model_hash(run):
        raise RunFolderError(f"{path} was made for another model than {run.folder.path}; calibrate this one.")
    facts = folder.record("facts", _Facts)
    signals = {_SIGNAL + name: "f2" for name in config.signals}
    arrays = folder.tensors(
        "reference", labels="i1", losses="f1", left_out="b2", log_odds="f2", calls="f2", **signals
    )
    try:
        pool = ReferencePool(
            as_ids(facts.ids),
            **{name: arrays[name] for name in _ARRAYS},
            signals={name: arrays[_SIGNAL + name] for name in config.signals},
        )
    except InputError as error:
        raise RunFolderError(f"{path} is damaged: {error}") from None
    trials = folder.records("trials", TrialResult)
    if (
        config.settings.budget is None
        or not config.signals
        or len({frozenset(trial.run.difficulty.proxies) for trial in trials}) != 1
    ):
        raise RunFolderError(
            f"{path} is damaged: expected a budget, signals for the verdict, and trials that all have the same proxies."
        )
    targets = read_fold_targets(path) if has_fold_targets(folder) else None
    return Calibration(config.settings, pool, trials, asdict(facts.retraining), config.inherited, targets)
