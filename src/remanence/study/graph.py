"""From a study's settings to its stages. The same settings give the same stages, whichever figure asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from remanence.data import Examples
from remanence.errors import InputError
from remanence.study.material import data_params, load_examples
from remanence.study.settings import BANDS, Study, plain
from remanence.study.stages import Stage
from remanence.study.stages_of_choice import FORGET, RANKS, SCORE
from remanence.study.stages_of_groups import GRAMS, GROUP
from remanence.study.stages_of_landscape import BARRIER
from remanence.study.stages_of_training import ORACLE, TRAIN
from remanence.study.stages_of_unlearning import MEASURE, TUNE, TUNED_ON, UNLEARN

CURVES = ("ua", "ra", "test", "mia")
"""What every unlearning run measures, asked for or not, so that all figures can share it."""
_FORWARD = 1 / 3
"""A forward pass relative to a training step over the same examples."""


@dataclass(frozen=True)
class Choice:
    """One forget set.

    Args:
        way: a band's name, `hardest` or `random`.
        size: how many examples.
        score: by which score.
    """

    way: str
    size: int
    score: str = "privacy_loss"

    @property
    def label(self) -> str:
        """For a person."""
        by = "" if self.score == "privacy_loss" or self.way == "random" else f" by {self.score}"
        return f"{self.way} {self.size}{by}"


class Graph:
    """The stages of one study. Costs are in training steps over one example."""

    def __init__(self, study: Study) -> None:
        self.study = study

    @cached_property
    def examples(self) -> tuple[Examples, Examples]:
        """Training and test examples."""
        return load_examples(self.study.data.source, self.study.data.train, self.study.data.test)

    @cached_property
    def setting(self) -> dict[str, Any]:
        """What every stage that touches a model is asked with."""
        return {
            "data": data_params(self.study.data),
            "model": plain(self.study.model),
            "recipe": plain(self.study.train.recipe),
        }

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

    def bands(self, size: float) -> list[Choice]:
        """The bands of the privacy loss; the outer two of the five are the easiest and the hardest so many."""
        count, n = self.size(size), len(self.examples[0])
        if count > n // 5:
            raise InputError(
                f"Five bands of {count} examples must fit into the {n} training examples; take at most {n // 5}."
            )
        return [Choice(way, count) for way in BANDS if way in self.study.forget.bands]

    def train(self, seed: int) -> Stage:
        """A training run with its trace."""
        train = self.study.train
        params = self.setting | {
            "seed": seed,
            "record": train.record,
            "placement": train.placement,
            "poison": None,
        }
        cost = self._pass() * (train.recipe.epochs + 0.9 * train.record)
        return Stage(TRAIN, params, cost=cost, title=f"seed {seed}")

    def poisoned(self, seed: int, sets: tuple[Choice, ...]) -> Stage:
        """A training run on data in which these forget sets carry noise."""
        params = self.setting | {"seed": seed, "record": 0, "placement": "even", "poison": self._poison()}
        needs = tuple(self.forget(each) for each in sets)
        return Stage(TRAIN, params, needs, self._epochs(), title=f"poisoned, seed {seed}")

    def score(self, seed: int) -> Stage:
        """The scores of a training run's examples."""
        noisy = self.study.train.recipe.noise > 0
        score = self.study.score
        params = {"alpha": score.alpha, "sigma": None if noisy else score.sigma}
        return Stage(SCORE, params, (self.train(seed),), cost=0.05 * self._pass(), title=f"seed {seed}")

    def forget(self, choice: Choice) -> Stage:
        """A forget set, chosen by the scores of one run for all."""
        params: dict[str, Any] = {"way": choice.way, "size": choice.size}
        if choice.way == "random":
            params["seed"] = self.study.forget.seed
        else:
            params["score"] = choice.score
        return Stage(FORGET, params, (self.score(self.study.forget.seed),), cost=1.0, title=choice.label)

    def oracle(self, choice: Choice, replicate: int) -> Stage:
        """A model that never saw the forget set."""
        params = self.setting | {"replicate": replicate}
        title = f"{choice.label}, {replicate}"
        return Stage(ORACLE, params, (self.forget(choice),), self._epochs(), title)

    def measured_oracle(self, choice: Choice, replicate: int) -> Stage:
        """What an oracle's metrics are."""
        params = self._of_model() | {
            "metrics": list(CURVES),
            "seed": replicate,
            "sample": self.study.unlearn.sample,
        }
        needs = (self.oracle(choice, replicate), self.forget(choice))
        return Stage(MEASURE, params, needs, self._pass() * _FORWARD, f"{choice.label}, {replicate}")

    def unlearned(
        self,
        choice: Choice,
        seed: int,
        method: str,
        *,
        learning_rate: float | None = None,
        epochs: int = 0,
        poisoned: tuple[Choice, ...] = (),
    ) -> Stage:
        """An unlearning run; with no learning rate given, the tuned one; from a poisoned model, timed by `gus` too."""
        unlearn, tuned = self.study.unlearn, learning_rate is None and bool(self.study.tune.learning_rates)
        params = self.setting | {
            "method": method,
            "options": dict(unlearn.options.get(method, {})),
            "epochs": epochs or unlearn.epochs,
            "every": unlearn.every,
            "sample": unlearn.sample,
            "learning_rate": None if tuned else learning_rate or unlearn.learning_rate,
            "metrics": [*CURVES, *(("gus",) if poisoned else ())],
            "seed": seed,
            "poison": self._poison() if poisoned else None,
        }
        start = self.poisoned(seed, poisoned) if poisoned else self.train(seed)
        needs = (start, self.forget(choice), *((self.tuned(method),) if tuned else ()))
        needs += tuple(self.forget(each) for each in poisoned)
        passes = params["epochs"] * (1 + _FORWARD * self._watched(choice) / unlearn.every)
        words = f"{method}, {choice.label}, seed {seed}" + (", poisoned" if poisoned else "")
        return Stage(UNLEARN, params, needs, self._pass() * passes, words)

    def tuned(self, method: str) -> Stage:
        """The learning rate for a method, chosen on a random forget set."""
        tune = self.study.tune
        choice = Choice("random", self.size(tune.size))
        oracles = [self.measured_oracle(choice, each) for each in range(tune.oracles)]
        trials = [
            self.unlearned(choice, seed, method, learning_rate=rate, epochs=tune.epochs)
            for seed in range(tune.seeds)
            for rate in tune.learning_rates
        ]
        params = {"learning_rates": list(tune.learning_rates), "oracles": len(oracles), "by": list(TUNED_ON)}
        return Stage(TUNE, params, (*oracles, *trials), cost=1.0, title=method)

    def ranks(self, seed: int) -> Stage:
        """The privacy losses of a training run at several noise levels."""
        params = {"alpha": self.study.score.alpha, "sigmas": list(self.study.score.sigmas)}
        return Stage(RANKS, params, (self.train(seed),), cost=1.0, title=f"seed {seed}")

    def barrier(self, a: Stage, b: Stage, choice: Choice, title: str) -> Stage:
        """The loss barrier between two models."""
        audit = self.study.audit
        params = self._of_model() | {
            "points": audit.points,
            "subsets": list(audit.subsets),
            "examples": audit.barrier_examples,
        }
        seen = min(audit.barrier_examples or self._pass(), self._pass())
        cost = (audit.points + 6) * seen * (1 + len(audit.subsets)) * _FORWARD
        return Stage(BARRIER, params, (a, b, self.forget(choice)), cost, title)

    def group(self, choices: list[Choice]) -> Stage:
        """Estimates of the group loss of each of these forget sets."""
        group, seed = self.study.group, self.study.forget.seed
        recipe = self.study.train.recipe
        asked = {"moments": group.moments, "batches": group.batches, "size": group.size, "seed": seed}
        a_look = len(choices) * group.size * 3 + group.batches * (1 + len(choices)) * recipe.batch_size
        grams = Stage(
            GRAMS,
            self.setting | asked,
            tuple(self.forget(each) for each in choices),
            cost=self._epochs() + (group.moments + 1) * a_look,
            title=f"seed {seed}",
        )
        params = {
            "data": self.setting["data"],
            "recipe": self.setting["recipe"],
            "sets": len(choices),
            "alpha": self.study.score.alpha,
            "sigmas": list(group.sigmas),
            "estimates": group.estimates,
            "draws": group.draws,
        }
        return Stage(GROUP, params, (grams,), cost=1.0, title=f"seed {seed}")

    def _of_model(self) -> dict[str, Any]:
        return {key: self.setting[key] for key in ("data", "model")}

    def _pass(self) -> float:
        return float(len(self.examples[0]))

    def _epochs(self) -> float:
        return self._pass() * self.study.train.recipe.epochs

    def _watched(self, choice: Choice) -> float:
        """Examples that one measurement passes through the model, relative to the training set."""
        train, test = (len(each) for each in self.examples)
        most = self.study.unlearn.sample or max(train, test)
        return (choice.size + min(train - choice.size, most) + min(test, most)) / train

    def _poison(self) -> dict[str, Any]:
        return {"variance": self.study.audit.poison_variance, "size": self.study.audit.poison_size}
