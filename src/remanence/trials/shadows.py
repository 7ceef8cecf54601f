"""Shadow models for U-LiRA: trained with half of the forget set, then unlearned by the method under test."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from remanence.audit import ShadowTable, evaluate
from remanence.data import Split
from remanence.errors import InputError
from remanence.training import Recipe, train_steps
from remanence.training.randomness import derive_seed
from remanence.types import ForgetSet

FEWEST = 6
"""With fewer, the shadows of a kind that are left to judge one of them are no distribution."""
_TIMED_STEPS = 3
Unlearn = Callable[[nn.Module, Split, int], Iterator[int]]
"""(model, split, seed) -> steps: a method under test with its hyperparameters."""


@dataclass(frozen=True)
class ShadowSetting:
    """How every shadow is made.

    Args:
        make: a new model with the initial weights that a seed gives it.
        recipe: how the model under test was trained.
        unlearn: how it was unlearned.
        steps: how many steps of that.
        seed: of everything random.
    """

    make: Callable[[int], nn.Module]
    recipe: Recipe
    unlearn: Unlearn
    steps: int
    seed: int = 0


@dataclass(frozen=True)
class ShadowPlan:
    """What a table of shadows takes, known before any is trained.

    Args:
        shadows: how many models.
        training_steps: of each.
        unlearning_steps: of each.
        seconds: for all, one after the other, by the time of a few steps.
    """

    shadows: int
    training_steps: int
    unlearning_steps: int
    seconds: float

    @property
    def steps(self) -> int:
        """Optimizer steps in all."""
        return self.shadows * (self.training_steps + self.unlearning_steps)

    def sentence(self, workers: int = 1) -> str:
        """The cost in words."""
        minutes = self.seconds / workers / 60
        length = f"{minutes:.0f} minutes" if minutes >= 1.5 else f"{max(1, round(minutes * 60))} seconds"
        return (
            f"{self.shadows} shadow models of {self.training_steps:,} training and {self.unlearning_steps:,} "
            f"unlearning steps each, {self.steps:,} steps in all: about {length}"
        )


def plan_shadows(
    setting: ShadowSetting, split: Split, *, shadows: int | None = None, budget: float | None = None
) -> ShadowPlan:
    """How many shadows to make and what they cost.

    Args:
        setting: how each is made.
        split: the data, with the forget set in question.
        shadows: how many, or
        budget: as many as this many seconds allow.
    """
    if (shadows is None) == (budget is None):
        raise InputError("Give either the number of shadow models or a budget of seconds.")
    each = setting.recipe.total_steps(len(split.retain) + len(split.forget) // 2)
    seconds = _seconds_per_step(setting, split) * (each + setting.steps)
    count = shadows if shadows is not None else int((budget or 0) / seconds) // 2 * 2
    if count < FEWEST or count % 2:
        need = f"{FEWEST} of them take about {math.ceil(FEWEST * seconds)} seconds"
        raise InputError(
            f"U-LiRA needs an even number of shadow models, {FEWEST} or more; got {count} ({need})."
        )
    return ShadowPlan(count, each, setting.steps, count * seconds)


def _seconds_per_step(setting: ShadowSetting, split: Split) -> float:
    model = setting.make(setting.seed)
    steps = train_steps(model, split.retain, setting.recipe, seed=setting.seed)
    next(steps)
    started = time.perf_counter()
    taken = sum(1 for _, _ in zip(range(_TIMED_STEPS), steps, strict=False))
    return (time.perf_counter() - started) / max(1, taken)


def members(split: Split, index: int, *, seed: int) -> NDArray[np.bool_]:
    """Which of the forget set's examples shadow number `index` is trained on.

    Shadows come in pairs that share the set between them, so that each example is in exactly half of them.
    """
    draw = np.random.default_rng(derive_seed(seed, "shadow halves", index // 2))
    n = len(split.forget)
    chosen = np.zeros(n, bool)
    chosen[draw.permutation(n)[: n // 2]] = True
    return chosen if index % 2 == 0 else ~chosen


def shadow(setting: ShadowSetting, split: Split, index: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Train a shadow on the retain set and its half of the forget set, unlearn that half, and ask it about everyone.

    Returns who was in the half, and the log-odds of the true class of every example of the forget set.
    """
    inside = members(split, index, seed=setting.seed)
    if not inside.any():
        raise InputError(
            "U-LiRA needs a forget set of two examples or more: shadows are trained on half of it."
        )
    half = ForgetSet(f"half of {split.forget_set.name}", split.forget.ids[inside])
    theirs = Split(split.train.without(split.forget.ids[~inside]), split.test, half)
    seed = derive_seed(setting.seed, "shadow", index)
    model = setting.make(seed)
    for _ in train_steps(model, theirs.train, setting.recipe, seed=seed):
        pass
    if setting.steps:
        for step in setting.unlearn(model, theirs, seed):
            if step >= setting.steps:
                break
    return inside, evaluate(model, split).forget.margin.numpy()


def shadow_table(
    setting: ShadowSetting,
    split: Split,
    shadows: int,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ShadowTable:
    """All shadows, one after the other in this process."""
    rows = []
    for index in range(shadows):
        rows.append(shadow(setting, split, index))
        progress(index + 1, shadows)
    return ShadowTable(
        split.forget.ids, np.stack([inside for inside, _ in rows]), np.stack([signal for _, signal in rows])
    )
