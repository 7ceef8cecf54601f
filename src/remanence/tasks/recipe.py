"""Recipes: the hyperparameters of training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from remanence.errors import InputError, UnknownNameError
from remanence.types import Mechanism, Sampling, check_choice, check_positive

Schedule = Literal["constant", "linear", "cosine", "milestones"]
Precision = Literal["float32", "bfloat16", "float16"]
ASSUMED_SIGMA = 0.1
"""The noise that the accounting assumes by default if training added none."""


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of training with SGD or another optimizer, or with SGLD if `noise` is above zero.

    Args:
        epochs: passes over the data; with Poisson sampling, the same number of steps.
        learning_rate: learning rate at the start.
        batch_size: examples per step; with Poisson sampling, on average.
        momentum: momentum, for optimizers that have one.
        weight_decay: weight decay of the optimizer.
        optimizer: `sgd`, `adam`, `adamw`, or the name of a class of `torch.optim`.
        optimizer_options: further arguments of the optimizer.
        clip: scale the mini-batch gradient down to this norm if it is larger; None for no clipping.
        schedule: learning rate schedule: `constant`, `linear` or `cosine` down to zero, or `milestones`.
        warmup: share of the steps in which the learning rate rises linearly from zero.
        milestones: epochs at which the learning rate is multiplied by `decay`.
        decay: factor of the learning rate at each milestone.
        noise: standard deviation of Gaussian noise on each coordinate of the mini-batch mean gradient.
        langevin: use `noise` as the σ of Langevin dynamics instead, w ← w − η g + √(2η) σ ξ.
        sampling: `shuffled` epochs, or `poisson`: every example is drawn independently at every step and the mean
            divides by the fixed `batch_size`, as certificates require.
        radius: project the weights onto a ball of this radius after each step; None for no projection.
        accumulate: number of parts that each batch is split into, to save memory; results differ only by rounding.
        augment: random crops and flips, seeded per example and epoch.
        precision: precision of the forward pass under autocast; slow on a CPU without native support.
        channels_last: use the memory format `torch.channels_last` for images.
        compile: run the model through `torch.compile`.
    """

    epochs: int
    learning_rate: float
    batch_size: int = 64
    momentum: float = 0.9
    weight_decay: float = 5e-4
    optimizer: str = "sgd"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    clip: float | None = None
    schedule: Schedule = "constant"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    warmup: float = 0.0
    noise: float = 0.0
    langevin: bool = False
    sampling: Sampling = "shuffled"
    radius: float | None = None
    accumulate: int = 1
    augment: bool = False
    precision: Precision = "float32"
    channels_last: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "batch_size", "decay", "accumulate"):
            check_positive(name, getattr(self, name))
        for name in ("momentum", "weight_decay", "noise"):
            if not getattr(self, name) >= 0:
                raise InputError(f"`{name}` must not be negative; got {getattr(self, name)}.")
        for name in ("radius", "clip"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        if not 0 <= self.warmup < 1:
            raise InputError(f"`warmup` must be a share of the steps, in [0, 1); got {self.warmup}.")
        optimizer_class(self.optimizer)
        check_choice("schedule", self.schedule, ("constant", "linear", "cosine", "milestones"))
        check_choice("sampling", self.sampling, ("shuffled", "poisson"))
        check_choice("precision", self.precision, ("float32", "bfloat16", "float16"))
        if bool(self.milestones) != (self.schedule == "milestones"):
            raise InputError(
                f"`milestones` must be given with schedule='milestones', and only then; got {self.milestones} "
                f"and {self.schedule!r}."
            )
        object.__setattr__(self, "milestones", tuple(self.milestones))

    def steps_per_epoch(self, n_examples: int) -> int:
        """Optimizer steps per epoch with this many examples."""
        return math.ceil(n_examples / self.batch_size)

    def total_steps(self, n_examples: int) -> int:
        """Optimizer steps in the whole run."""
        return self.epochs * self.steps_per_epoch(n_examples)

    def learning_rate_at(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step, counted from 0."""
        total = self.epochs * steps_per_epoch
        rising = round(self.warmup * total)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        if self.schedule == "linear":
            return self.learning_rate * (1 - (step - rising) / (total - rising))
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rising) / (total - rising)))
        passed = sum(step >= milestone * steps_per_epoch for milestone in self.milestones)
        return self.learning_rate * self.decay**passed

    @property
    def largest_learning_rate(self) -> float:
        """Largest learning rate of the run; above the first one where `decay` is above 1."""
        if self.schedule == "cosine":
            return self.learning_rate
        passed = sum(milestone < self.epochs for milestone in self.milestones)
        return self.learning_rate * max(1.0, self.decay**passed)

    def noise_at(self, learning_rate: float) -> float:
        """Standard deviation of the noise on the gradient at this learning rate."""
        return self.noise * math.sqrt(2 / learning_rate) if self.langevin else self.noise

    def mechanism(
        self, n_examples: int, *, assumed_sigma: float, model: nn.Module | None = None
    ) -> Mechanism:
        """The mechanism of a training run with this recipe, for privacy accounting.

        Langevin noise on the gradient grows as the learning rate falls and falls as it grows; its smallest value over
        the run is used.

        Args:
            n_examples: number of training examples.
            assumed_sigma: the noise to assume if the recipe adds none.
            model: the model, to see whether its layers couple examples.
        """
        return Mechanism(
            sigma=self.noise_at(self.largest_learning_rate) or assumed_sigma,
            sampling_rate=min(1.0, self.batch_size / n_examples),
            steps=self.total_steps(n_examples),
            batch_size=self.batch_size if self.sampling == "poisson" else min(self.batch_size, n_examples),
            sampling=self.sampling,
            denominator="fixed" if self.sampling == "poisson" else "random",
            assumed=self.noise == 0,
            couples_examples=model is not None and couples_examples(model.modules()),
        )


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The class of this name in `torch.optim`, in any case."""
    classes = {
        other.lower(): value
        for other, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    }
    unusable = {"optimizer", "lbfgs", "sparseadam"}  # abstract; need a closure; need sparse gradients
    if name.lower() not in classes.keys() - unusable:
        raise UnknownNameError("optimizer", name, sorted(classes.keys() - unusable))
    return classes[name.lower()]


def couples_examples(modules: Iterable[nn.Module]) -> bool:
    """Whether the gradient of an example depends on others in its batch in training, because of BatchNorm."""
    coupling = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
    return any(isinstance(module, coupling) for module in modules)


RECIPES = {
    # The paper gives neither momentum nor batch size; these are the usual ones for this schedule.
    "paper": Recipe(
        epochs=150,
        learning_rate=0.01,
        batch_size=128,
        schedule="milestones",
        milestones=(80, 120),
        augment=True,
    ),
    "plain": Recipe(epochs=30, learning_rate=0.05),
}
