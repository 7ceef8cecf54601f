"""Shadow models: trained with half of the forget set, then unlearned by the method under test."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from remanence.audit import ShadowTable, evaluate
from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.stages import NOT_IN_KEY, Read, Stage, Store
from remanence.storage import Draft
from remanence.tasks import Recipe, Task, derive_seed
from remanence.training import Run, RunSettings, fit_model, train_steps
from remanence.types import ForgetSet, as_ids
from remanence.unlearning import METHODS

FEWEST = 4
"""Two pairs, for BaVarIA and the SWAP test; U-LiRA gives numbers from six on."""
_TIMED_STEPS = 3
Unlearn = Callable[[nn.Module, Split, int], None]
"""(model, split, seed): unlearns in place."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Shadow(Stage):
    """One shadow model of a run. Shadows of a run that was not unlearned are only trained.

    Args:
        settings: how the run was trained.
        method: how it was unlearned, with `options` and `recipe`, for `steps` steps; empty when it was not.
        removed: examples that the run is without, apart from the forget set.
        forget: the forget set.
        data: digest of the data set.
        seed: random seed of all shadows.
        index: which of them.
        given_task: the task of the run, if only this process has it.
    """

    kind = "shadow"

    settings: RunSettings
    method: str
    options: Mapping[str, Any]
    recipe: Recipe | None
    steps: int
    removed: tuple[int | str, ...]
    forget: tuple[int | str, ...]
    data: str
    seed: int
    index: int
    given_task: Task | None = field(default=None, metadata=NOT_IN_KEY)

    def compute(self, draft: Draft, read: Read) -> None:
        """Make the shadow; write who was trained on, and the signal of every example of the forget set."""
        inside, signal = make_shadow(
            self.task(),
            self.split(),
            self.index,
            seed=self.seed,
            unlearn=self._unlearn if self.steps else None,
        )
        draft.tensors("shadow", {"member": inside, "signal": signal})

    def task(self) -> Task:
        """The task of the run, without the examples removed elsewhere."""
        task = self.given_task or self.settings.source.open()
        poison = self.settings.draw_poison(task.train)
        train = task.train if poison is None else poison.applied(task.train)
        return replace(task, train=train.without(as_ids(self.removed)) if self.removed else train)

    def split(self) -> Split:
        """The data with the whole forget set."""
        return self.task().split(ForgetSet("forget", as_ids(self.forget)))

    def _unlearn(self, model: nn.Module, split: Split, seed: int) -> None:
        assert self.recipe is not None  # a run that was unlearned has one
        for step in METHODS[self.method](self.recipe, **self.options)(model, split, seed=seed):
            if step >= self.steps:
                return


def make_shadow(
    task: Task, split: Split, index: int, *, seed: int, unlearn: Unlearn | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Train on the retain set and half of the forget set, unlearn that half, and evaluate the whole forget set.

    Args:
        task: how to build and train the model.
        split: the data, with the forget set in question.
        index: number of the shadow; decides its half.
        seed: random seed of all shadows.
        unlearn: unlearns the half, in place; None for shadows that are only trained.

    Returns:
        Which examples of the forget set were in the half, and the log-odds of the true class of all of them.
    """
    inside = members(split, index, seed=seed)
    if not inside.any():
        raise InputError(
            "U-LiRA needs a forget set of at least two examples: shadows are trained on half of it."
        )
    half = ForgetSet("half of the forget set", split.forget.ids[inside])
    shadow_split = Split(split.train.without(split.forget.ids[~inside]), split.test, half)
    own_seed = derive_seed(seed, "shadow", index)
    model, _ = fit_model(task, shadow_split.train, seed=own_seed)
    if unlearn is not None:
        unlearn(model, shadow_split, own_seed)
    return inside, evaluate(model, split).forget.margin.numpy()


def shadow_stages(run: Run, forget_set: ForgetSet, shadows: int, *, seed: int) -> list[Shadow]:
    """One stage per shadow of a run."""
    run.workers(1)  # refuses a folder that is not trusted
    settings = replace(
        run.settings,
        seed=0,
        record=0,
        checkpoint_every=0,
        keep_checkpoints=False,
        poison_seed=run.settings.noise_seed,
    )
    unlearning = run.unlearning
    forgotten = set(forget_set.ids.tolist())
    return [
        Shadow(
            settings=settings,
            method=unlearning.get("method", ""),
            options=unlearning.get("options", {}),
            recipe=Recipe(**unlearning["recipe"]) if unlearning else None,
            steps=int(unlearning.get("steps") or 0),
            removed=tuple(example for example in run.removed.tolist() if example not in forgotten),
            forget=tuple(forget_set.ids.tolist()),
            data=run.clean[0].digest(),
            seed=seed,
            index=index,
            given_task=None if run.can_travel else run.whole_task,
        )
        for index in range(shadows)
    ]


def read_shadows(store: Store, stages: Sequence[Shadow]) -> ShadowTable:
    """The table that finished shadows make up."""
    rows = [store.get(stage).tensors("shadow") for stage in stages]
    return ShadowTable(
        as_ids(stages[0].forget),
        np.stack([row["member"] for row in rows]),
        np.stack([row["signal"] for row in rows]),
    )


@dataclass(frozen=True)
class ShadowPlan:
    """The cost of a table of shadows, known before any is trained.

    Args:
        shadows: number of models.
        training_steps: training steps of each.
        unlearning_steps: unlearning steps of each.
        seconds: for all of them one after the other, from the time of a few steps.
    """

    shadows: int
    training_steps: int
    unlearning_steps: int
    seconds: float

    @property
    def steps(self) -> int:
        """Optimizer steps in total."""
        return self.shadows * (self.training_steps + self.unlearning_steps)

    def sentence(self, workers: int = 1) -> str:
        """The cost in words."""
        minutes = self.seconds / workers / 60
        length = f"{minutes:.0f} minutes" if minutes >= 1.5 else f"{max(1, round(minutes * 60))} seconds"
        return (
            f"{self.shadows} shadow models of {self.training_steps:,} training and {self.unlearning_steps:,} "
            f"unlearning steps each, {self.steps:,} steps in total: about {length}"
        )


def plan_shadows(
    task: Task,
    split: Split,
    unlearning_steps: int,
    *,
    shadows: int | None = None,
    budget: float | None = None,
) -> ShadowPlan:
    """How many shadows to make, and what they cost.

    Args:
        task: how each is built and trained.
        split: the data, with the forget set in question.
        unlearning_steps: steps of unlearning of each.
        shadows: how many, or
        budget: as many as this many seconds allow.
    """
    if (shadows is None) == (budget is None):
        raise InputError("Give either the number of shadow models or a budget of seconds.")
    steps = task.recipe.total_steps(len(split.retain) + len(split.forget) // 2)
    seconds = seconds_per_step(task.new_model(0), split.retain, task.recipe) * (steps + unlearning_steps)
    count = shadows if shadows is not None else int((budget or 0) / seconds) // 2 * 2
    if count < FEWEST or count % 2:
        need = f"{FEWEST} of them take about {math.ceil(FEWEST * seconds)} seconds"
        raise InputError(f"Expected an even number of shadow models, {FEWEST} or more; got {count} ({need}).")
    return ShadowPlan(count, steps, unlearning_steps, count * seconds)


def seconds_per_step(model: nn.Module, examples: Examples, recipe: Recipe) -> float:
    """Seconds of a training step on this machine, from a few steps of the model, which are taken."""
    steps = train_steps(model, examples, recipe, seed=0)
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
