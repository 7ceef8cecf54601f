"""Stages that unlearn, measure, and choose a learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remanence.audit import Context
from remanence.audit.evaluation import model_outputs
from remanence.data import Examples, Split
from remanence.errors import NumericalError
from remanence.experiments import (
    Evaluations,
    Trajectory,
    curve,
    every_steps,
    measure,
    read_curve,
    read_measurements,
    sampled,
    thinning_steps,
    unlearn_and_measure,
)
from remanence.experiments.choice import gentlest_of_the_best, tried
from remanence.experiments.unlearning_loop import read_trajectory
from remanence.gradients.evaluation_mode import evaluating
from remanence.stages import Read, Stage
from remanence.storage import Draft
from remanence.study.artifacts import PoisonSettings, read_forget_set, read_model
from remanence.study.train_stages import Oracle
from remanence.tasks import Poison, Recipe, TaskSource
from remanence.tasks.recipe import Schedule
from remanence.training import Training, write_weights
from remanence.unlearning import METHODS


@dataclass(frozen=True, eq=False, kw_only=True)
class Measure(Stage):
    """The metrics of an oracle."""

    kind = "measure"
    version = 3

    task: TaskSource
    metrics: tuple[str, ...]
    seed: int
    sample: int
    oracle: Oracle
    forget: Stage

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the measurements."""
        task = self.task.open()
        split = _watched(task.split(read_forget_set(read(self.forget))), self.sample)
        model = read_model(read(self.oracle), task)
        rows = measure(model, split, self.metrics, step=0, seed=self.seed)
        draft.rows("measurements", map(asdict, rows))


@dataclass(frozen=True)
class Begun:
    """An unlearning run before its first step.

    Args:
        training: the run.
        split: the data, poisoned if the model was.
        context: the poison, for the metrics that look for it.
        steps: when to measure.
        rate: its learning rate.
    """

    training: Training
    split: Split
    context: Context
    steps: frozenset[int]
    rate: float

    def document(self, diverged: NumericalError | None) -> dict[str, Any]:
        """What is written about the run beside its measurements."""
        poison = self.context.poison
        return {
            "steps_per_epoch": self.training.steps_per_epoch,
            "learning_rate": self.rate,
            "diverged": None if diverged is None else str(diverged),
            "poisoned": 0 if poison is None else int(np.isin(self.split.forget.ids, poison.ids).sum()),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class UnlearningStage(Stage):
    """What all stages that unlearn have in common.

    Args:
        task: what was trained.
        method: name of the unlearning method.
        options: its hyperparameters.
        epochs: passes over the retain set.
        schedule: learning rate schedule.
        every: epochs between two measurements.
        first_every: steps between two measurements in the first `first_epochs` epochs; 0 for no such phase.
        first_epochs: length of that phase.
        noise: standard deviation of the noise of `noisy_finetune`; None for that of training.
        learning_rate: fixed, or None for the one that `tuned` chose.
        seed: random seed of the unlearning.
        start: the trained model.
        forget: the forget set.
        tuned: the stage that chose the learning rate.
        poison: the noise that the model was trained with, on the sets `poisoned`.
    """

    task: TaskSource
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int
    schedule: Schedule = "constant"
    every: float
    first_every: int = 0
    first_epochs: float = 1.0
    noise: float | None = None
    learning_rate: float | None
    seed: int
    start: Stage
    forget: Stage
    tuned: Tune | None = None
    poison: PoisonSettings | None = None
    poisoned: tuple[Stage, ...] = ()

    def begin(self, read: Read) -> Begun:
        """The run before its first step."""
        task = self.task.open()
        poison = self._poison(read)
        clean = None if poison is None else task.train
        if poison is not None:
            task = replace(task, train=poison.applied(task.train))
        split = task.split(read_forget_set(read(self.forget)))
        rate = self._rate(read)
        recipe = unlearning_recipe(self.method, self._trained(task.recipe), self.epochs, rate, self.schedule)
        training = METHODS[self.method](recipe, **self.options).begin(
            read_model(read(self.start), task), split, seed=self.seed
        )
        epoch = task.recipe.steps_per_epoch(len(split.retain))
        return Begun(training, split, Context(poison=poison, clean=clean), self._steps(epoch), rate)

    def _steps(self, epoch: int) -> frozenset[int]:
        total, every = self.epochs * epoch, max(1, round(self.every * epoch))
        steps = (
            thinning_steps(total, every, first_every=self.first_every, until=round(self.first_epochs * epoch))
            if self.first_every
            else every_steps(total, every)
        )
        return frozenset(steps.tolist())

    def _trained(self, recipe: Recipe) -> Recipe:
        return recipe if self.noise is None else replace(recipe, noise=self.noise)

    def _rate(self, read: Read) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        assert self.tuned is not None  # the graph gives one or the other
        return float(read(self.tuned).document("choice")["learning_rate"])

    def _poison(self, read: Read) -> Poison | None:
        if self.poison is None:
            return None
        train = self.task.open().train
        return self.poison.draw(train, [read_forget_set(read(stage)) for stage in self.poisoned])


@dataclass(frozen=True, eq=False, kw_only=True)
class Unlearn(UnlearningStage):
    """An unlearning run, measured on the way.

    Args:
        sample: measure on at most this many retain and test examples; on all when 0.
        metrics: what to measure.
    """

    kind = "unlearn"
    version = 3

    sample: int
    metrics: tuple[str, ...]

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the measurements, whether it diverged, and the weights unless it did."""
        begun = self.begin(read)
        watched = _watched(begun.split, self.sample)
        evaluations = Evaluations(watched, self.metrics, begun.steps, self.seed, begun.context)
        trajectory = unlearn_and_measure(begun.training, evaluations)
        if trajectory.diverged is None:
            write_weights(draft, begun.training.model)
        draft.rows("measurements", map(asdict, trajectory.rows))
        draft.document("unlearning", begun.document(trajectory.diverged))


@dataclass(frozen=True, eq=False, kw_only=True)
class ForgetPaths(UnlearningStage):
    """The log-odds of every example of the forget set while it is unlearned, and with its oracles."""

    kind = "paths"

    oracles: tuple[Oracle, ...]

    def compute(self, draft: Draft, read: Read) -> None:
        """Write steps, log-odds of the model at each of them, and log-odds of each oracle."""
        begun, task = self.begin(read), self.task.open()
        examples, model = begun.split.forget, begun.training.model
        paths = [_log_odds(model, examples)]

        def record(step: int, total: int) -> None:
            if step in begun.steps:
                paths.append(_log_odds(model, examples))

        nothing = Evaluations(begun.split, (), (), self.seed)
        trajectory = unlearn_and_measure(begun.training, nothing, progress=record)
        oracles = [_log_odds(read_model(read(oracle), task), examples) for oracle in self.oracles]
        steps = np.array(sorted(begun.steps))[: len(paths)]
        draft.tensors(
            "paths",
            {"ids": examples.ids, "steps": steps, "model": np.stack(paths), "oracles": np.stack(oracles)},
        )
        draft.document("unlearning", begun.document(trajectory.diverged))


def _log_odds(model: nn.Module, examples: Examples) -> NDArray[np.float64]:
    with evaluating(model), torch.no_grad():
        margins: NDArray[np.float64] = model_outputs(model, examples).margin.numpy()
    return margins


@dataclass(frozen=True, eq=False, kw_only=True)
class Tune(Stage):
    """The learning rate of a method, chosen among those tried on random forget sets.

    Args:
        by: the metrics whose balance decides.
        floor: rates with which retain accuracy ends below this are not chosen, if there are others.
        oracles: measured oracles, at least one per forget set that the attempts use.
        attempts: unlearning runs, one per seed and learning rate.
    """

    kind = "tune"
    version = 4

    by: tuple[str, ...]
    floor: float = 0.0
    oracles: tuple[Measure, ...]
    attempts: tuple[Unlearn, ...]

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the chosen rate, and of each rate the distance to the oracles and the retain accuracy."""
        rates = sorted({attempt.learning_rate or 0.0 for attempt in self.attempts})
        configurations = [
            tried(number, {"learning_rate": rate}, self._trajectories(rate, read))
            for number, rate in enumerate(rates)
        ]
        retain = {rate: self._retain(rate, read) for rate in rates}
        above = [
            entry for entry in configurations if retain[entry.options["learning_rate"]]["end"] >= self.floor
        ]
        highest = max(configurations, key=lambda entry: retain[entry.options["learning_rate"]]["end"])
        chosen = gentlest_of_the_best(above or [highest])
        draft.document(
            "choice",
            {
                "learning_rate": chosen.options["learning_rate"],
                "floor": self.floor,
                "floor_met": bool(above),
                "retain_accuracy": {str(rate): values for rate, values in retain.items()},
                "distance_to_oracle": {
                    str(configuration.options["learning_rate"]): configuration.distance
                    for configuration in configurations
                    if not configuration.diverged
                },
            },
        )

    def _retain(self, rate: float, read: Read) -> dict[str, float]:
        """Retain accuracy at the end and at its lowest, on average over seeds; 0 if a run diverged."""
        runs = [read(attempt) for attempt in self.attempts if attempt.learning_rate == rate]
        if any(run.document("unlearning")["diverged"] is not None for run in runs):
            return {"end": 0.0, "lowest": 0.0}
        curves = [read_curve(run, "ra")[1] for run in runs]
        return {
            "end": float(np.mean([values[-1] for values in curves])),
            "lowest": float(np.mean([min(values) for values in curves])),
        }

    def _trajectories(self, rate: float, read: Read) -> list[tuple[Trajectory, dict[str, float]]]:
        return [
            (read_trajectory(read(attempt), "unlearning"), self._goal(attempt.forget, read))
            for attempt in self.attempts
            if attempt.learning_rate == rate
        ]

    def _goal(self, forget: Stage, read: Read) -> dict[str, float]:
        oracles = [oracle for oracle in self.oracles if oracle.forget.key == forget.key]
        rows = [read_measurements(read(oracle)) for oracle in oracles]
        return {
            metric: float(np.mean([curve(measurements, metric)[1][-1] for measurements in rows]))
            for metric in self.by
        }


def unlearning_recipe(
    method: str, trained: Recipe, epochs: int, learning_rate: float, schedule: Schedule
) -> Recipe:
    """The recipe of training with the length and learning rate of unlearning; noise only for the noisy method."""
    return replace(
        trained,
        epochs=epochs,
        learning_rate=learning_rate,
        schedule=schedule,
        milestones=(),
        noise=trained.noise if method == "noisy_finetune" else 0.0,
    )


def _watched(split: Split, sample: int) -> Split:
    """The data to measure on: the forget set, and a sample of the rest when that is enough."""
    return sampled(split, sample, seed=0) if sample else split
