"""How to train: everything but the model, the data and the seed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from remanence.errors import InputError
from remanence.types import Mechanism, Sampling, check_choice, check_positive

Schedule = Literal["constant", "cosine", "milestones"]
Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Recipe:
    """SGD; SGLD when `noise` is above zero.

    Args:
        epochs: passes over the data (with Poisson sampling: as many steps as passes would have).
        learning_rate: at the start.
        batch_size: examples a step; with Poisson sampling, on average.
        momentum: of SGD.
        weight_decay: of SGD.
        schedule: `constant`; `cosine` down to zero; or `milestones`, a factor `decay` at each of these epochs.
        milestones: epochs at which the learning rate drops.
        decay: by which factor.
        noise: standard deviation of Gaussian noise on each coordinate of the mini-batch mean gradient.
        langevin: take `noise` as the σ of Langevin dynamics, w ← w − η g + √(2η) σ ξ, instead.
        sampling: `shuffled` epochs, or `poisson`: every example independently at every step, the mean taken over
            the fixed `batch_size`, which is what a certificate needs.
        radius: project the weights onto a ball of this radius after each step.
        accumulate: split each batch into this many parts to save memory; the result is the same but for rounding.
        augment: random crops and flips, seeded for each example and epoch.
        precision: run the forward pass under autocast; never worth it on a CPU without native support.
        channels_last: keep images in that memory format.
        compile: run the model through `torch.compile`.
    """

    epochs: int
    learning_rate: float
    batch_size: int = 64
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Schedule = "constant"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
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
        if self.radius is not None:
            check_positive("radius", self.radius)
        check_choice("schedule", self.schedule, ("constant", "cosine", "milestones"))
        check_choice("sampling", self.sampling, ("shuffled", "poisson"))
        check_choice("precision", self.precision, ("float32", "bfloat16", "float16"))
        if bool(self.milestones) != (self.schedule == "milestones"):
            raise InputError(
                f"`milestones` go with schedule='milestones', and only with it; got {self.milestones} "
                f"and {self.schedule!r}."
            )
        object.__setattr__(self, "milestones", tuple(self.milestones))

    def steps_per_epoch(self, n_examples: int) -> int:
        """Optimizer steps in one pass over this many examples."""
        return math.ceil(n_examples / self.batch_size)

    def total_steps(self, n_examples: int) -> int:
        """Optimizer steps in the whole run."""
        return self.epochs * self.steps_per_epoch(n_examples)

    def learning_rate_at(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate of this step, counted from 0."""
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / (self.epochs * steps_per_epoch)))
        passed = sum(step >= milestone * steps_per_epoch for milestone in self.milestones)
        return self.learning_rate * self.decay**passed

    def noise_at(self, learning_rate: float) -> float:
        """Standard deviation of the noise on the gradient at this learning rate."""
        return self.noise * math.sqrt(2 / learning_rate) if self.langevin else self.noise

    def mechanism(
        self, n_examples: int, *, assumed_sigma: float, model: nn.Module | None = None
    ) -> Mechanism:
        """What accounting needs to know of a run with this recipe.

        Langevin noise is larger on the gradient when the learning rate is smaller; the smallest is reported.
        """
        return Mechanism(
            sigma=self.noise_at(self.learning_rate) or assumed_sigma,
            sampling_rate=min(1.0, self.batch_size / n_examples),
            steps=self.total_steps(n_examples),
            batch_size=self.batch_size if self.sampling == "poisson" else min(self.batch_size, n_examples),
            sampling=self.sampling,
            denominator="fixed" if self.sampling == "poisson" else "random",
            assumed=self.noise == 0,
            couples_examples=model is not None and couples_examples(model.modules()),
        )


def couples_examples(modules: Iterable[nn.Module]) -> bool:
    """Whether a module makes one example's gradient depend on the others of its batch in training."""
    coupling = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
    return any(isinstance(module, coupling) for module in modules)


RECIPES = {
    # The paper names neither momentum nor batch size; these are the usual ones for this schedule.
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
