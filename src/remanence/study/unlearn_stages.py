"""Stages that unlearn, measure, and choose a learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from remanence.audit import Context
from remanence.data import Split
from remanence.experiments import (
    Evaluations,
    Trajectory,
    curve,
    every_steps,
    measure,
    read_measurements,
    sampled,
    unlearn_and_measure,
)
from remanence.experiments.choice import gentlest_of_the_best, tried
from remanence.experiments.unlearning_loop import read_trajectory
from remanence.stages import Read, Stage
from remanence.storage import Draft
from remanence.study.artifacts import PoisonSettings, read_forget_set, read_model
from remanence.study.train_stages import Oracle
from remanence.tasks import Poison, Recipe, TaskSource
from remanence.training import write_weights
from remanence.unlearning import METHODS, Method

TUNED_ON = ("mia", "test")
"""The learning rate is chosen by the balance of these: forgetting, and utility."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Measure(Stage):
    """The metrics of an oracle."""

    kind = "measure"
    version = 2

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Unlearn(Stage):
    """An unlearning run, measured on the way.

    Args:
        task: what was trained.
        method: name of the unlearning method.
        options: its hyperparameters.
        epochs: passes over the retain set.
        every: epochs between two measurements.
        noise: standard deviation of the noise of `noisy_finetune`; None for that of training.
        sample: measure on at most this many retain and test examples; on all when 0.
        learning_rate: fixed, or None for the one that `tuned` chose.
        metrics: what to measure.
        seed: random seed of the unlearning.
        start: the trained model.
        forget: the forget set.
        tuned: the stage that chose the learning rate.
        poison: the noise that the model was trained with, on the sets `poisoned`.
    """

    kind = "unlearn"
    version = 2

    task: TaskSource
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int
    every: float
    noise: float | None = None
    sample: int
    learning_rate: float | None
    metrics: tuple[str, ...]
    seed: int
    start: Stage
    forget: Stage
    tuned: Tune | None = None
    poison: PoisonSettings | None = None
    poisoned: tuple[Stage, ...] = ()

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the measurements, whether it diverged, and the weights unless it did."""
        task = self.task.open()
        poison = self._poison(read)
        clean = None if poison is None else task.train
        if poison is not None:
            task = replace(task, train=poison.applied(task.train))
        split = task.split(read_forget_set(read(self.forget)))
        rate = self._rate(read)
        training = method_for(self.method, self.options, self._trained(task.recipe), self.epochs, rate).begin(
            read_model(read(self.start), task), split, seed=self.seed
        )
        epoch = task.recipe.steps_per_epoch(len(split.retain))
        at = every_steps(self.epochs * epoch, max(1, round(self.every * epoch)))
        evaluations = Evaluations(
            _watched(split, self.sample),
            self.metrics,
            set(at.tolist()),
            self.seed,
            Context(poison=poison, clean=clean),
        )
        trajectory = unlearn_and_measure(training, evaluations)
        if trajectory.diverged is None:
            write_weights(draft, training.model)
        draft.rows("measurements", map(asdict, trajectory.rows))
        draft.document(
            "unlearning",
            {
                "steps_per_epoch": epoch,
                "learning_rate": rate,
                "diverged": None if trajectory.diverged is None else str(trajectory.diverged),
                "poisoned": 0 if poison is None else int(np.isin(split.forget.ids, poison.ids).sum()),
            },
        )

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
class Tune(Stage):
    """The learning rate of a method, chosen among those tried on random forget sets.

    Args:
        by: the metrics whose balance decides.
        oracles: measured oracles, at least one per forget set that the attempts use.
        attempts: unlearning runs, one per seed and learning rate.
    """

    kind = "tune"
    version = 3

    by: tuple[str, ...] = TUNED_ON
    oracles: tuple[Measure, ...]
    attempts: tuple[Unlearn, ...]

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the chosen rate, and the best balance of each."""
        rates = sorted({attempt.learning_rate or 0.0 for attempt in self.attempts})
        configurations = [
            tried(number, {"learning_rate": rate}, self._trajectories(rate, read))
            for number, rate in enumerate(rates)
        ]
        chosen = gentlest_of_the_best(configurations)
        draft.document(
            "choice",
            {
                "learning_rate": chosen.options["learning_rate"],
                "distance_to_oracle": {
                    str(configuration.options["learning_rate"]): configuration.distance
                    for configuration in configurations
                    if not configuration.diverged
                },
            },
        )

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


def method_for(
    name: str, options: Mapping[str, Any], trained: Recipe, epochs: int, learning_rate: float
) -> Method:
    """A method with a constant learning rate; noise only for the method that is about it."""
    recipe = replace(
        trained,
        epochs=epochs,
        learning_rate=learning_rate,
        schedule="constant",
        milestones=(),
        noise=trained.noise if name == "noisy_finetune" else 0.0,
    )
    return METHODS[name](recipe, **options)


def _watched(split: Split, sample: int) -> Split:
    """The data to measure on: the forget set, and a sample of the rest when that is enough."""
    return sampled(split, sample, seed=0) if sample else split
