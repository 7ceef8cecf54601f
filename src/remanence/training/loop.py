"""The training loop, for training and for unlearning."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from remanence.batches import Batch, call, device_of, mapped, moved
from remanence.data import Examples
from remanence.errors import InputError, NumericalError
from remanence.machine import require_half
from remanence.tasks import Recipe, derive_seed, generator
from remanence.tasks.randomness import generator_device, seeded
from remanence.tasks.recipe import optimizer_class
from remanence.training.objective import BatchStream, Objective, Term, mean_loss
from remanence.training.ranks import SINGLE_PROCESS, Ranks

_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Training:
    """A training run in progress: the model, its optimizer, and the number of steps taken.

    Every random draw is derived from the seed and the step, so `step`, the weights and the momentum are the whole
    state, and random draws of the caller between steps do not change the run.

    Args:
        model: the model, which is trained in place.
        examples: the training examples.
        recipe: how to train.
        seed: random seed for the batch order, the noise, augmentation and dropout.
        ranks: the processes that share the work.
        objective: the loss to minimize; by default the mean loss of the examples.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples,
        recipe: Recipe,
        *,
        seed: int,
        ranks: Ranks = SINGLE_PROCESS,
        objective: Objective | None = None,
    ) -> None:
        self.model, self.examples, self.recipe, self.seed, self.ranks = model, examples, recipe, seed, ranks
        self.step = 0
        self.objective = objective or mean_loss(BatchStream(examples, recipe, seed))
        self.steps_per_epoch, self.total_steps = self.objective.steps_per_epoch, self.objective.total_steps
        if recipe.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.device = device_of(model)
        require_half("precision", recipe.precision, self.device.type)
        self.optimizer = _optimizer(self.parameters.values(), recipe, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "float16")
        self._forward = torch.compile(model) if recipe.compile else model

    @cached_property
    def data_digest(self) -> str:
        """Digest of the training examples, which a resumed run must match."""
        return self.examples.digest()

    def steps(self) -> Iterator[int]:
        """Take the remaining steps; after each, yield the number of steps taken so far."""
        while self.step < self.total_steps:
            if self.step == 0:
                self.objective.before_first_step(self.parameters)
            self._take_step()
            self.step += 1
            yield self.step

    def _take_step(self) -> None:
        learning_rate = self.recipe.learning_rate_at(self.step, self.steps_per_epoch)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with self._seeded_forward():
            for term in self.objective.terms(self.step):
                self._backward(term)
        self._fill_gradients()
        self.scaler.unscale_(self.optimizer)
        self.ranks.add_up(p.grad for p in self.parameters.values() if p.grad is not None)
        self.objective.change_gradients(self.parameters, self.step)
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters.values(), self.recipe.clip)
        self._add_noise(self.recipe.noise_at(learning_rate))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._project()
        self.objective.after_step(self.parameters, self.step)

    def _backward(self, term: Term) -> None:
        """Add this process's share of a term to the gradients."""
        rows = term.stream.rows(term.index)
        denominator = term.stream.denominator(rows)
        for part, *batch in term.read(self.ranks):
            loss = term.weight * self._losses(term, *batch).sum() / denominator
            self._refuse_nan(loss, term.stream.examples, part)
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def _losses(self, term: Term, inputs: Batch, labels: Batch) -> Tensor:
        inputs, labels = moved(inputs, self.device), moved(labels, self.device)
        if self.recipe.channels_last:
            inputs = mapped(inputs, _channels_last)
        with self._casting():
            return term.losses(call(self._forward, inputs), inputs, labels)

    def _casting(self) -> AbstractContextManager[Any]:
        dtype = _AUTOCAST.get(self.recipe.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def _refuse_nan(self, loss: Tensor, examples: Examples, rows: Tensor) -> None:
        if not torch.isfinite(loss):
            first = examples.ids[rows.numpy()][:5].tolist()
            raise NumericalError(
                f"The loss became {loss.item()} at step {self.step} (first ids of the batch: {first}). "
                "Try a smaller learning rate; earlier checkpoints are kept."
            )

    @contextmanager
    def _seeded_forward(self) -> Iterator[None]:
        """Seed torch for dropout in this step, and restore its random state afterwards."""
        seed = derive_seed(self.seed, "forward", self.step, self.ranks.rank)
        with seeded(seed, self.device):
            yield

    def _fill_gradients(self) -> None:
        """Give parameters without a gradient zeros: if a batch is empty, noise and weight decay still apply."""
        for parameter in self.parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def _add_noise(self, scale: float) -> None:
        if scale == 0:
            return
        source = generator(self.seed, "noise", self.step, device=generator_device(self.device))
        for parameter in self.parameters.values():
            noise = torch.randn(parameter.shape, generator=source, device=source.device).to(self.device)
            parameter.grad.add_(noise, alpha=scale)  # type: ignore[union-attr]

    @torch.no_grad()
    def _project(self) -> None:
        if self.recipe.radius is None:
            return
        squares = [p.double().square().sum() for p in self.parameters.values()]
        norm = torch.stack(squares).sum().sqrt().item()
        if norm > self.recipe.radius:
            for parameter in self.parameters.values():
                parameter.mul_(self.recipe.radius / norm)


def _optimizer(
    parameters: Iterable[nn.Parameter], recipe: Recipe, device: torch.device
) -> torch.optim.Optimizer:
    """The recipe's optimizer; its fused form where there is one."""
    make = optimizer_class(recipe.optimizer)
    accepted = inspect.signature(make).parameters
    common = {"momentum": recipe.momentum, "weight_decay": recipe.weight_decay}
    arguments = {name: value for name, value in common.items() if name in accepted}
    if device.type in ("cpu", "cuda") and "fused" in accepted:
        arguments["fused"] = True
    for name in recipe.optimizer_options:
        if name not in accepted or name in ("params", "lr"):
            raise InputError(f"`optimizer_options` must be arguments of {make.__name__}; {name!r} is not.")
    options: dict[str, Any] = {**arguments, **recipe.optimizer_options}
    return make(list(parameters), lr=recipe.learning_rate, **options)  # type: ignore[call-arg]


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def train_steps(model: nn.Module, examples: Examples, recipe: Recipe, *, seed: int) -> Iterator[int]:
    """Train a model in place; after each step, yield the number of steps taken so far.

    Args:
        model: the model, which is trained in place.
        examples: the training examples.
        recipe: how to train.
        seed: random seed for the batch order, the noise, augmentation and dropout.
    """
    return Training(model, examples, recipe, seed=seed).steps()
