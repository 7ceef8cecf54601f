"""Fine-tune copies of a model on retained data and on the forget set, and see what comes back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import nn

from remanence.audit import evaluate
from remanence.audit.relearning import Recovery, Relearn, Relearned
from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.experiments.measuring import curve
from remanence.experiments.schedule import sampled
from remanence.experiments.shadows import seconds_per_step
from remanence.experiments.unlearning_loop import Evaluations, unlearn_and_measure
from remanence.tasks import Recipe, derive_seed
from remanence.training import Training

SHARES = (1.0, 0.1)
"""A high rate moves a model further, but can make it forget what it had kept; an attacker would try both."""


@dataclass(frozen=True)
class Relearning:
    """How models are fine-tuned in a relearning test. A call with a model, its split and its recipe runs the test.

    Args:
        epochs: epochs on retained data only.
        steps: steps on the forget set.
        shares: constant learning rates on retained data, as shares of that of training; each is tried with a copy of
            its own. On the forget set the smallest is used, since a few steps on it alone make models unstable.
        seed: random seed of the batch order.
    """

    epochs: int = 3
    steps: int = 10
    shares: tuple[float, ...] = SHARES
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"`{name}` of relearning must be at least 1; got {getattr(self, name)}.")
        if not self.shares or min(self.shares) <= 0:
            raise InputError(f"`shares` of relearning must be above 0; got {self.shares}.")

    def __call__(self, model: nn.Module, split: Split, recipe: Recipe) -> Relearned:
        """Fine-tune copies of the model; the model itself stays as it is.

        Args:
            model: the model in question.
            split: the data, with the forget set in question.
            recipe: how the model was trained; batch size, momentum and weight decay are kept.
        """
        watched = sampled(split, 1, self.seed)
        metrics = ("forget_log_odds", "ua") if _has_accuracy(model, watched) else ("forget_log_odds",)
        evaluations = Evaluations(watched, metrics, (), self.seed)
        epochs_on_forget = -(-self.steps // recipe.steps_per_epoch(len(split.forget)))
        forget = constant_rate(recipe, epochs_on_forget, min(self.shares))
        return Relearned(
            tuple(
                self._recover(
                    model, split.retain, constant_rate(recipe, self.epochs, share), evaluations, "retain"
                )
                for share in self.shares
            ),
            self._recover(model, split.forget, forget, evaluations, "forget", self.steps),
        )

    def steps_on_retain(self, split: Split, recipe: Recipe) -> int:
        """Steps on retained data, with all learning rates together."""
        return len(self.shares) * self.epochs * recipe.steps_per_epoch(len(split.retain))

    def _recover(
        self,
        model: nn.Module,
        examples: Examples,
        recipe: Recipe,
        evaluations: Evaluations,
        name: str,
        steps: int | None = None,
    ) -> Recovery:
        training = Training(
            copy.deepcopy(model), examples, recipe, seed=derive_seed(self.seed, "relearn", name)
        )
        total = steps or training.total_steps
        every = 1 if steps else training.steps_per_epoch
        due = replace(evaluations, steps=range(0, total + 1, every))
        rows = unlearn_and_measure(training, due, steps=total).rows  # up to a divergence, if there is one
        _, wrong = curve(rows, "ua")
        taken, log_odds = curve(rows, "forget_log_odds")
        return Recovery(tuple(taken), tuple(1 - share for share in wrong), tuple(log_odds))


def _has_accuracy(model: nn.Module, watched: Split) -> bool:
    try:
        return evaluate(model, watched).forget.accuracy >= 0
    except InputError:  # the task does not say which answers are right
        return False


def constant_rate(recipe: Recipe, epochs: int, share: float = 1.0) -> Recipe:
    """The recipe with a share of its learning rate, constant, and without noise."""
    return replace(
        recipe,
        epochs=epochs,
        learning_rate=share * recipe.learning_rate,
        schedule="constant",
        warmup=0.0,
        milestones=(),
        noise=0.0,
        langevin=False,
    )


def relearning_cost(how: Relearning, model: nn.Module, split: Split, recipe: Recipe, models: int) -> str:
    """The steps and the time of a relearning test, in words.

    Args:
        how: the settings of the test.
        model: one of the models; a few steps of a copy are timed.
        split: the data, with the forget set in question.
        recipe: how the model was trained.
        models: number of models that are tested.
    """
    on_retain = how.steps_on_retain(split, recipe)
    per_step = seconds_per_step(copy.deepcopy(model), split.retain, recipe)
    seconds = models * (on_retain + how.steps) * per_step
    length = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{max(1, round(seconds))} seconds"
    who = "1 model" if models == 1 else f"{models} models"
    return (
        f"Relearning: {who}, each fine-tuned for {on_retain:,} steps on retained data and {how.steps} on the forget "
        f"set: about {length}."
    )


def announced(how: Relearning, models: int, note: Callable[[str], None]) -> Relearn:
    """The same test, which calls `note` with its cost before the first model is fine-tuned."""
    waiting = [note]

    def relearn(model: nn.Module, split: Split, recipe: Recipe) -> Relearned:
        while waiting:
            waiting.pop()(relearning_cost(how, model, split, recipe, models))
        return how(model, split, recipe)

    return relearn
