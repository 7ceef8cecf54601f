"""The training loop, for training and for unlearning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn

from remanence.data import Examples
from remanence.errors import NumericalError
from remanence.machine import require_half
from remanence.tasks import Recipe, derive_seed, generator
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
        objective: the loss to minimize; by default the mean cross-entropy of the examples.
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
        self.device = next(iter(self.parameters.values())).device
        require_half("precision", recipe.precision, self.device.type)
        self.optimizer = torch.optim.SGD(
            self.parameters.values(),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            fused=self.device.type in ("cpu", "cuda") or None,
        )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "float16")
        self._forward = torch.compile(model) if recipe.compile else model

    @cached_property
    def data_digest(self) -> str:
        """Digest of the training examples, which a resumed run must match."""
        return self.examples.digest()

    def steps(self) -> Iterator[int]:
        """Take the remaining steps; after each, yield the number of steps taken so far."""
        while self.step < self.total_steps:
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
        self.objective.add_penalty(self.parameters, self.step)
        self._add_noise(self.recipe.noise_at(learning_rate))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._project()
        self.objective.after_step(self.parameters, self.step)

    def _backward(self, term: Term) -> None:
        """Add this process's share of a term to the gradients."""
        rows = term.stream.rows(term.index)
        denominator = term.stream.denominator(rows)
        for part in torch.tensor_split(self.ranks.share(rows), self.recipe.accumulate):
            if len(part):
                loss = term.weight * self._losses(term, part).sum() / denominator
                self._refuse_nan(loss, term.stream.examples, part)
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def _losses(self, term: Term, rows: Tensor) -> Tensor:
        inputs, labels = (part.to(self.device) for part in term.stream.batch(rows, term.index))
        if self.recipe.channels_last and inputs.dim() == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        dtype = _AUTOCAST.get(self.recipe.precision)
        with torch.autocast(self.device.type, dtype, enabled=dtype is not None):
            return term.loss(self._forward(inputs), inputs, labels)

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
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            seed = derive_seed(self.seed, "forward", self.step, self.ranks.rank)
            # torch.manual_seed would, without a GPU, keep a traceback of every call in memory
            torch.default_generator.manual_seed(seed)
            if self.device.type == "cuda":
                torch.cuda.manual_seed(seed)
            yield

    def _fill_gradients(self) -> None:
        """Give parameters without a gradient zeros: if a batch is empty, noise and weight decay still apply."""
        for parameter in self.parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def _add_noise(self, scale: float) -> None:
        if scale == 0:
            return
        source = generator(self.seed, "noise", self.step, device=self.device)
        for parameter in self.parameters.values():
            noise = torch.randn(parameter.shape, generator=source, device=self.device)
            parameter.grad.add_(noise, alpha=scale)  # type: ignore[union-attr]

    @torch.no_grad()
    def _project(self) -> None:
        if self.recipe.radius is None:
            return
        norm = torch.sqrt(sum((p.double().square().sum() for p in self.parameters.values()), torch.zeros(())))
        if norm > self.recipe.radius:
            for parameter in self.parameters.values():
                parameter.mul_(float(self.recipe.radius / norm))


def train_steps(model: nn.Module, examples: Examples, recipe: Recipe, *, seed: int) -> Iterator[int]:
    """Train a model in place; after each step, yield the number of steps taken so far.

    Args:
        model: the model, which is trained in place.
        examples: the training examples.
        recipe: how to train.
        seed: random seed for the batch order, the noise, augmentation and dropout.
    """
    return Training(model, examples, recipe, seed=seed).steps()
