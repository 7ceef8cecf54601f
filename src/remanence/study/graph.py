"""From a study's settings to its stages. The same settings give the same stages, whichever figure asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from remanence.data import Examples
from remanence.errors import InputError
from remanence.stages import Stage
from remanence.study.artifacts import PoisonSettings
from remanence.study.barrier_stage import BarrierStage
from remanence.study.forget_stages import Compositions, Forget, Ranks, Score
from remanence.study.group_stages import Grams, Group
from remanence.study.settings import BANDS, Study
from remanence.study.train_stages import BaseModel, Oracle, Train
from remanence.study.unlearn_stages import ForgetPaths, Measure, Tune, Unlearn
from remanence.tasks import TaskSource

CURVES = ("ua", "ra", "test", "mia_confidence", "mia_auc")
"""What every unlearning run measures, so that all figures can share it."""
_FORWARD = 1 / 3
"""Cost of a forward pass relative to a training step over the same examples."""


@dataclass(frozen=True)
class ForgetChoice:
    """One forget set.

    Args:
        way: a band's name, `hardest` or `random`.
        size: number of examples.
        score: the score to choose by.
    """

    way: str
    size: int
    score: str = "privacy_loss"

    @property
    def label(self) -> str:
        """A few words for the progress display."""
        by = "" if self.score == "privacy_loss" or self.way == "random" else f" by {self.score}"
        return f"{self.way} {self.size}{by}"


class Graph:
    """The stages of one study. Costs are in training steps over one example."""

    def __init__(self, study: Study) -> None:
        self.study = study

    @cached_property
    def task(self) -> TaskSource:
        """What every stage that touches a model works on."""
        return self.study.task

    @cached_property
    def examples(self) -> tuple[Examples, Examples]:
        """Training and test examples."""
        return self.study.data.load()

    def with_noise(self, noise: float) -> Graph:
        """The same study with SGLD."""
        return Graph(self.study.with_noise(noise))

    def size(self, size: float) -> int:
        """A forget set's size from a share or a count."""
        n = len(self.examples[0])
        count = round(size * n) if size < 1 else round(size)
        if not 1 <= count < n:
            raise InputError(
                f"A forget set must have between 1 and {n - 1} of the {n} training examples; `sizes` asks for {size:g}."
            )
        return count

    def bands(self, size: float) -> list[ForgetChoice]:
        """The bands of the privacy loss; the outer two of the five are the easiest and the hardest."""
        count, n = self.size(size), len(self.examples[0])
        if count > n // 5:
            raise InputError(
                f"Five bands of {count} examples must fit into the {n} training examples; take at most {n // 5}."
            )
        return [ForgetChoice(way, count) for way in BANDS if way in self.study.forget.bands]

    def scored_by(self, seed: int) -> int:
        """The training run whose scores choose the forget sets that are unlearned with this seed."""
        return seed if self.study.forget.per_seed else self.study.scoring_seed

    def train(self, seed: int) -> Train:
        """A training run with its trace."""
        train = self.study.train
        return Train(
            task=self.task,
            seed=seed,
            record=train.record,
            placement=train.placement,
            cost=self._pass() * (train.recipe.epochs + 0.9 * train.record),
            title=f"seed {seed}",
        )

    def poisoned(self, seed: int, sets: tuple[ForgetChoice, ...]) -> Train:
        """A training run on data in which these forget sets carry noise."""
        return Train(
            task=self.task,
            seed=seed,
            poison=self._poison(),
            poisoned=tuple(self.forget(choice, seed) for choice in sets),
            cost=self._epochs(),
            title=f"poisoned, seed {seed}",
        )

    def score(self, seed: int) -> Score:
        """The scores of a training run's examples."""
        noisy = self.study.train.recipe.noise > 0
        return Score(
            alpha=self.study.score.alpha,
            sigma=None if noisy else self.study.score.sigma,
            trained=self.train(seed),
            cost=0.05 * self._pass(),
            title=f"seed {seed}",
        )

    def base(self, trained: Train) -> BaseModel:
        """How well a training run has memorised its data."""
        return BaseModel(
            task=trained.task,
            trained=trained,
            cost=self._pass() * _FORWARD,
            title=f"seed {trained.seed}",
        )

    def forget(self, choice: ForgetChoice, seed: int) -> Forget:
        """A forget set that is unlearned with this seed."""
        scored_by = self.scored_by(seed)
        random = choice.way == "random"
        return Forget(
            way=choice.way,
            size=choice.size,
            score="privacy_loss" if random else choice.score,
            seed=scored_by if random else None,
            scores=self.score(scored_by),
            title=choice.label,
        )

    def oracle(self, choice: ForgetChoice, index: int, seed: int) -> Oracle:
        """A model that never saw the forget set."""
        return Oracle(
            task=self.task,
            seed=self.scored_by(seed),
            index=index,
            forget=self.forget(choice, seed),
            cost=self._epochs(),
            title=f"{choice.label}, {index}",
        )

    def measured_oracle(self, choice: ForgetChoice, index: int, seed: int) -> Measure:
        """The metrics of an oracle."""
        return Measure(
            task=self.task,
            metrics=CURVES,
            seed=index,
            sample=self.study.unlearn.sample,
            oracle=self.oracle(choice, index, seed),
            forget=self.forget(choice, seed),
            cost=self._pass() * _FORWARD,
            title=f"{choice.label}, {index}",
        )

    def unlearned(
        self,
        choice: ForgetChoice,
        seed: int,
        method: str,
        *,
        learning_rate: float | None = None,
        epochs: int = 0,
        poisoned: tuple[ForgetChoice, ...] = (),
    ) -> Unlearn:
        """An unlearning run, with the tuned learning rate unless one is given; `gus` is measured on poisoned models."""
        common = self._unlearning(choice, seed, method, learning_rate, epochs)
        return Unlearn(
            **common,
            sample=self.study.unlearn.sample,
            metrics=(*CURVES, *(("gus",) if poisoned else ())),
            start=self.poisoned(seed, poisoned) if poisoned else self.train(seed),
            poison=self._poison() if poisoned else None,
            poisoned=tuple(self.forget(other, seed) for other in poisoned),
            title=f"{method}, {choice.label}, seed {seed}" + (", poisoned" if poisoned else ""),
        )

    def paths(self, choice: ForgetChoice, seed: int, method: str) -> ForgetPaths:
        """The log-odds of every example of a forget set while it is unlearned."""
        return ForgetPaths(
            **self._unlearning(choice, seed, method),
            start=self.train(seed),
            oracles=tuple(self.oracle(choice, index, seed) for index in range(self.study.audit.oracles)),
            title=f"{method}, {choice.label}, seed {seed}",
        )

    def _unlearning(
        self,
        choice: ForgetChoice,
        seed: int,
        method: str,
        learning_rate: float | None = None,
        epochs: int = 0,
    ) -> dict[str, Any]:
        """The fields that all stages of this unlearning run have in common."""
        unlearn, own = self.study.unlearn, self.study.unlearn.of(method)
        tuned = learning_rate is None and bool(self.learning_rates(method))
        epochs, every = epochs or own.epochs or unlearn.epochs, own.every or unlearn.every
        dense = self._pass() * unlearn.first_epochs / self.task.recipe.batch_size
        evaluations = epochs / every + (dense / unlearn.first_every if unlearn.first_every else 0)
        return {
            "task": self.task,
            "method": method,
            "options": dict(unlearn.options.get(method, {})),
            "epochs": epochs,
            "schedule": unlearn.schedule,
            "every": every,
            "first_every": unlearn.first_every,
            "first_epochs": unlearn.first_epochs,
            "noise": own.noise,
            "learning_rate": None if tuned else learning_rate or unlearn.learning_rate,
            "seed": seed,
            "forget": self.forget(choice, seed),
            "tuned": self.tuned(method) if tuned else None,
            "cost": self._pass() * (epochs + _FORWARD * self._watched(choice) * evaluations),
        }

    def learning_rates(self, method: str) -> tuple[float, ...]:
        """The learning rates to choose from."""
        return self.study.unlearn.of(method).learning_rates or self.study.tune.learning_rates

    def tuned(self, method: str) -> Tune:
        """The learning rate for a method, chosen on random forget sets."""
        tune = self.study.tune
        choice = ForgetChoice("random", self.size(tune.size))
        longest = self.study.unlearn.of(method).epochs or tune.epochs
        oracles = {
            stage.key: stage
            for seed in self.study.tuning_seeds
            for index in range(tune.oracles)
            for stage in (self.measured_oracle(choice, index, seed),)
        }
        attempts = [
            self.unlearned(choice, seed, method, learning_rate=rate, epochs=min(tune.epochs, longest))
            for seed in self.study.tuning_seeds
            for rate in self.learning_rates(method)
        ]
        return Tune(
            by=tune.metrics,
            floor=tune.floor,
            oracles=tuple(oracles.values()),
            attempts=tuple(attempts),
            title=method,
        )

    def compositions(self, seed: int) -> Compositions:
        """The privacy losses of a training run by several rules of composition."""
        return Compositions(
            alpha=self.study.score.alpha,
            sigma=self.study.score.sigma,
            trained=self.train(seed),
            cost=0.1 * self._pass(),
            title=f"seed {seed}",
        )

    def ranks(self, seed: int) -> Ranks:
        """The privacy losses of a training run at several noise levels."""
        return Ranks(
            alpha=self.study.score.alpha,
            sigmas=self.study.score.sigmas,
            trained=self.train(seed),
            cost=0.1 * self._pass(),
            title=f"seed {seed}",
        )

    def barrier(
        self, first: Stage, second: Stage, choice: ForgetChoice, seed: int, title: str
    ) -> BarrierStage:
        """The loss barrier between two models; one part of the data is the forget set of this seed."""
        audit = self.study.audit
        measured = min(audit.barrier_examples or self._pass(), self._pass())
        return BarrierStage(
            task=self.task,
            points=audit.points,
            subsets=audit.subsets,
            examples=audit.barrier_examples,
            first=first,
            second=second,
            forget=self.forget(choice, seed),
            cost=(audit.points + 6) * measured * (1 + len(audit.subsets)) * _FORWARD,
            title=title,
        )

    def group(self, choices: list[ForgetChoice]) -> Group:
        """Estimates of the group loss of each of these forget sets."""
        group, seed = self.study.group, self.study.scoring_seed
        recipe = self.study.train.recipe
        per_moment = len(choices) * group.size * 3 + group.batches * (1 + len(choices)) * recipe.batch_size
        grams = Grams(
            task=self.task,
            seed=seed,
            moments=group.moments,
            batches=group.batches,
            size=group.size,
            forget_sets=tuple(self.forget(choice, seed) for choice in choices),
            cost=self._epochs() + (group.moments + 1) * per_moment,
            title=f"seed {seed}",
        )
        return Group(
            task=self.task,
            sets=len(choices),
            alpha=self.study.score.alpha,
            sigmas=group.sigmas,
            estimates=group.estimates,
            draws=group.draws,
            grams=grams,
            title=f"seed {seed}",
        )

    def _pass(self) -> float:
        return float(len(self.examples[0]))

    def _epochs(self) -> float:
        return self._pass() * self.study.train.recipe.epochs

    def _watched(self, choice: ForgetChoice) -> float:
        """Examples per measurement, relative to the training set."""
        train, test = (len(examples) for examples in self.examples)
        most = self.study.unlearn.sample or max(train, test)
        return (choice.size + min(train - choice.size, most) + min(test, most)) / train

    def _poison(self) -> PoisonSettings:
        return PoisonSettings(self.study.audit.poison_variance, self.study.audit.poison_size)
