"""The one training loop. SGD; SGLD when `noise` is above zero."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from remanence.data import Examples
from remanence.errors import InputError, NumericalError
from remanence.types import Mechanism, check_choice, check_positive

Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class Recipe:
    """How to train: everything but the model, the data and the seed.

    Args:
        epochs: passes over the data.
        learning_rate: at the start.
        batch_size: examples a step; the last batch of an epoch may be smaller.
        momentum: of SGD.
        weight_decay: of SGD.
        schedule: `constant`, or `cosine` down to zero over the run.
        noise: standard deviation of Gaussian noise added to each coordinate of the mini-batch mean gradient.
    """

    epochs: int
    learning_rate: float
    batch_size: int = 64
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Schedule = "constant"
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "batch_size"):
            check_positive(name, getattr(self, name))
        for name in ("momentum", "weight_decay", "noise"):
            if not getattr(self, name) >= 0:
                raise InputError(f"`{name}` must not be negative; got {getattr(self, name)}.")
        check_choice("schedule", self.schedule, ("constant", "cosine"))

    def steps_per_epoch(self, n_examples: int) -> int:
        """Optimizer steps in one pass over this many examples."""
        return math.ceil(n_examples / self.batch_size)

    def total_steps(self, n_examples: int) -> int:
        """Optimizer steps in the whole run."""
        return self.epochs * self.steps_per_epoch(n_examples)

    def learning_rate_at(self, step: int, total: int) -> float:
        """The learning rate of this step, counted from 0."""
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / total))
        return self.learning_rate

    def mechanism(self, n_examples: int, assumed_sigma: float) -> Mechanism:
        """What accounting needs to know of a run with this recipe."""
        return Mechanism(
            sigma=self.noise or assumed_sigma,
            sampling_rate=min(1.0, self.batch_size / n_examples),
            steps=self.total_steps(n_examples),
            batch_size=min(self.batch_size, n_examples),
            sampling="shuffled",
            denominator="random",
            assumed=self.noise == 0,
        )


def train_steps(model: nn.Module, examples: Examples, recipe: Recipe, *, seed: int) -> Iterator[int]:
    """Train in place and yield the number of steps taken, after each of them.

    The caller may look at the model between steps, and stops by no longer asking. Batches and noise
    come from `seed` alone, so what the caller does in between changes nothing.
    """
    shuffling = torch.Generator().manual_seed(seed)
    noising = torch.Generator().manual_seed(seed + 2**32)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(
        parameters,
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        fused=True,
    )
    total, step = recipe.total_steps(len(examples)), 0
    for _ in range(recipe.epochs):
        order = torch.randperm(len(examples), generator=shuffling)
        for batch in torch.split(order, recipe.batch_size):
            model.train()
            optimizer.param_groups[0]["lr"] = recipe.learning_rate_at(step, total)
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(examples.inputs[batch]), examples.labels[batch])
            if not torch.isfinite(loss):
                first = examples.ids[batch.numpy()][:5].tolist()
                raise NumericalError(f"The loss became {loss.item()} at step {step} (batch ids {first}…).")
            loss.backward()  # type: ignore[no-untyped-call]
            if recipe.noise:
                _add_noise(parameters, recipe.noise, noising)
            optimizer.step()
            step += 1
            yield step


def _add_noise(parameters: list[nn.Parameter], scale: float, generator: torch.Generator) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.add_(torch.randn(parameter.shape, generator=generator), alpha=scale)
