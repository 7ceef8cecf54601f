"""A calibration: the reference pool of a run, and how long forget sets of all kinds took to unlearn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from remanence.errors import InputError, RunFolderError
from remanence.forecast import (
    ENOUGH,
    CalibrationRun,
    Forecaster,
    ReferencePool,
)
from remanence.requests.criterion import SMALL, StoppingMetric
from remanence.requests.request import model_hash
from remanence.storage import SEAL, create, open_folder
from remanence.storage.table_reading import read_record
from remanence.training import Run
from remanence.types import Ids, as_ids
from remanence.unlearning import full_names, make_method

FOLDER = "calibration"
_FORMAT = 2
_ARRAYS = ("labels", "left_out", "log_odds", "calls")
_WEIGHT_DECAY = 1e-3
"""Weight decay of unlearning when the model was trained with none."""


@dataclass(frozen=True)
class CalibrationSettings:
    """How to calibrate.

    Args:
        method: the method that requests will be unlearned with.
        options: its hyperparameters. By default the learning rate of training and twice its weight decay, which makes
            a model forget examples that it no longer sees.
        sets: number of forget sets to unlearn.
        small: number of further sets with fewer than 20 examples, for requests of that size.
        sizes: smallest and largest size of the sets.
        models: number of reference models.
        budget: maximum number of unlearning steps; by default the steps of training, beyond which retraining is
            cheaper.
        seed: random seed of the folds, the forget sets and the unlearning.
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
            raise InputError(f"`sets` must be at least {ENOUGH} for a usable interval; got {self.sets}.")
        if self.small and self.small < ENOUGH:
            raise InputError(f"`small` must be 0 or at least {ENOUGH}; got {self.small}.")
        if self.sizes[0] < SMALL:
            raise InputError(
                f"`sizes` must begin at {SMALL} or above (`small` is for smaller sets); got {self.sizes}."
            )
        if self.budget is not None and self.budget < 1:
            raise InputError(f"`budget` must be at least 1 step; got {self.budget}.")
        if self.method == "retrain":
            raise InputError("`retrain` needs no calibration: it takes as long as training.")

    def resolved(self, run: Run) -> CalibrationSettings:
        """The same settings with the defaults that depend on the run."""
        recipe = run.settings.recipe
        defaults = {
            "learning_rate": recipe.learning_rate,
            "weight_decay": 2 * recipe.weight_decay or _WEIGHT_DECAY,
        }
        options = defaults | full_names(self.options)
        make_method(self.method, options, recipe)
        steps = recipe.total_steps(len(run.data()[0]))
        return replace(self, options=options, budget=self.budget or steps)


@dataclass(frozen=True)
class TrialResult:
    """One forget set that was unlearned. It does not name the examples, so it is kept when some of them are removed.

    Args:
        run: the difficulty of the set, and the steps it took.
        metric: the metric of its criterion.
        accuracy_change: change of test accuracy.
        seconds_per_step: of unlearning with its evaluations; None when it was not measured.
    """

    run: CalibrationRun
    metric: StoppingMetric
    accuracy_change: float
    seconds_per_step: float | None


@dataclass(frozen=True, eq=False)
class Calibration:
    """A finished calibration.

    Args:
        settings: how it was made; requests are unlearned in the same way.
        pool: the reference models.
        trials: the forget sets that were unlearned.
        retraining: steps and seconds of training a reference model, and its test accuracy; medians.
        inherited: whether it was made before examples were removed from the run.
    """

    settings: CalibrationSettings
    pool: ReferencePool
    trials: Sequence[TrialResult]
    retraining: Mapping[str, float]
    inherited: bool = False

    def runs(self, metric: StoppingMetric) -> list[CalibrationRun]:
        """The runs whose criterion uses this metric."""
        return [trial.run for trial in self.trials if trial.metric == metric]

    def forecaster(self, metric: StoppingMetric) -> Forecaster:
        """A forecaster fitted on these runs; refused when there are too few."""
        if metric not in self._forecasters:
            if not self.runs(metric) and metric == "log_odds":
                raise InputError(
                    f"A request of fewer than {SMALL} ids needs a calibration with small sets; this one has none. "
                    f"Calibrate again with `small` of {ENOUGH} or more."
                )
            self._forecasters[metric] = Forecaster(self.runs(metric))
        return self._forecasters[metric]

    def seconds_per_step(self) -> float:
        """The median over the trials, on the machine that calibrated."""
        seconds = [trial.seconds_per_step for trial in self.trials]
        return float(np.median([value for value in seconds if value is not None]))

    def without(self, ids: Ids) -> Calibration:
        """The calibration of a run that these examples are removed from."""
        return replace(self, pool=self.pool.without(ids), inherited=True)

    def write(self, folder: Path, model: str) -> None:
        """Write it into a folder, for the model with these weights."""
        pool = self.pool
        with create(folder, "calibration") as draft:
            draft.config(
                {
                    "format": _FORMAT,
                    "model": model,
                    "inherited": self.inherited,
                    "settings": asdict(self.settings),
                }
            )
            draft.tensors("reference", {name: getattr(pool, name) for name in _ARRAYS})
            draft.document("facts", {"retraining": dict(self.retraining), "ids": pool.ids.tolist()})
            draft.rows("trials", map(asdict, self.trials))

    @cached_property
    def _forecasters(self) -> dict[str, Forecaster]:
        return {}


@dataclass(frozen=True)
class _Config:
    """What config.toml holds."""

    format: int
    model: str
    inherited: bool
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


def read_calibration(run: Run) -> Calibration:
    """The calibration of a run; one that was made for another model is refused."""
    path = run.folder.path / FOLDER
    if not (path / SEAL).exists():
        raise RunFolderError(
            f"{run.folder.path} must be calibrated before requests can be planned; it is not. "
            f"Run `remanence calibrate {run.folder.path}`."
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
    arrays = folder.tensors("reference", labels="i1", left_out="b2", log_odds="f2", calls="f2")
    try:
        pool = ReferencePool(as_ids(facts.ids), **{name: arrays[name] for name in _ARRAYS})
    except InputError as error:
        raise RunFolderError(f"{path} is damaged: {error}") from None
    trials = folder.records("trials", TrialResult)
    if (
        config.settings.budget is None
        or len({frozenset(trial.run.difficulty.proxies) for trial in trials}) > 1
    ):
        raise RunFolderError(f"{path} is damaged: expected a budget, and the same proxies in every trial.")
    return Calibration(config.settings, pool, trials, asdict(facts.retraining), config.inherited)
