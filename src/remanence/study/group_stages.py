"""Stages for group losses: inner products of gradients during a training run, and the losses they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.batches import call, device_of, moved
from remanence.data import Examples
from remanence.gradients import example_gradients_gram
from remanence.gradients.evaluation_mode import evaluating
from remanence.stages import Read, Stage
from remanence.storage import Draft
from remanence.study.artifacts import read_forget_set
from remanence.tasks import ASSUMED_SIGMA, TaskSource
from remanence.theory.group import group_loss
from remanence.training import placed_steps, train_steps
from remanence.types import Mechanism

_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False, kw_only=True)
class Grams(Stage):
    """Inner products of the gradients of forget sets and of mini-batches, at a few moments of a training run.

    Args:
        task: what to train.
        seed: random seed of the run.
        moments: how many moments.
        batches: mini-batches of the training set, and as many without the forget set.
        size: examples of a forget set whose gradients are taken, at most.
        forget_sets: the forget sets.
    """

    kind = "grams"
    version = 2

    task: TaskSource
    seed: int
    moments: int
    batches: int
    size: int
    forget_sets: tuple[Stage, ...]

    def compute(self, draft: Draft, read: Read) -> None:
        """Write one stack of Gram matrices per forget set."""
        task = self.task.open()
        train, recipe = task.train, task.recipe
        model = task.new_model(self.seed)
        moments = placed_steps(recipe.total_steps(len(train)), self.moments, "log")
        sets = [read_forget_set(read(stage)).ids for stage in self.forget_sets]
        rng = np.random.default_rng(self.seed)
        grams: dict[str, list[NDArray[np.float64]]] = {}

        def record() -> None:
            common = _batch_gradients(model, train, self.batches, recipe.batch_size, rng)
            for i, ids in enumerate(sets):
                drawn = np.sort(rng.choice(len(ids), min(len(ids), self.size), replace=False))
                members = train.take(ids[drawn])
                inputs, labels = members.batch(torch.arange(len(members)))
                gram = example_gradients_gram(model, inputs, labels, loss=members.readout.loss).cpu()
                others = _batch_gradients(model, train.without(ids), self.batches, recipe.batch_size, rng)
                grams.setdefault(f"set-{i}", []).append(gram.double().numpy())
                grams.setdefault(f"batches-{i}", []).append(_centred_gram(torch.cat([common, others])))

        record()
        for step in train_steps(model, train, recipe, seed=self.seed):
            if step in moments:
                record()
        draft.tensors("grams", {"steps": moments, **{name: np.stack(rows) for name, rows in grams.items()}})


@dataclass(frozen=True, eq=False, kw_only=True)
class Group(Stage):
    """Estimates of the group loss of each forget set: one row per set, noise level, form and estimate."""

    kind = "group"
    version = 2

    task: TaskSource
    sets: int
    alpha: float
    sigmas: tuple[float, ...]
    estimates: int
    draws: int
    grams: Grams

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the finite estimates."""
        grams = read(self.grams).tensors("grams")
        task = self.task.open()
        mechanism = task.recipe.mechanism(len(task.train), assumed_sigma=ASSUMED_SIGMA)
        rows = [
            {"set": i, "sigma": sigma, "form": form, "estimate": estimate, "value": value}
            for i in range(self.sets)
            for sigma in self.sigmas
            for estimate in range(self.estimates)
            for form, value in self._estimate(grams, i, mechanism, sigma, estimate).items()
        ]
        draft.rows("losses", rows)

    def _estimate(
        self, grams: dict[str, NDArray[np.float64]], i: int, mechanism: Mechanism, sigma: float, estimate: int
    ) -> dict[str, float]:
        """The paper's form from a random half of the batches, the coupled one by other draws, its bound by none."""
        steps, own, batches = grams["steps"], grams[f"set-{i}"], grams[f"batches-{i}"]
        common: dict[str, Any] = {"steps": steps, "mechanism": mechanism, "alpha": self.alpha, "sigma": sigma}
        rng = np.random.default_rng((estimate, i))
        half = len(batches[0]) // 2
        inside, outside = (np.sort(rng.choice(half, max(2, half // 2), replace=False)) for _ in range(2))
        rows = np.concatenate([inside, half + outside])
        drawn: dict[str, Any] = {"draws": self.draws, "seed": estimate}
        losses = {
            "coupled": group_loss(list(own), method="coupled", **common, **drawn).value,
            "independent": group_loss(
                [gram[np.ix_(rows, rows)] for gram in batches],
                method="independent",
                with_rows=len(inside),
                **common,
                **drawn,
            ).value,
        }
        if estimate == 0:
            losses["upper"] = group_loss(list(own), method="upper", **common).value
        return {form: value for form, value in losses.items() if np.isfinite(value)}


def _batch_gradients(
    model: nn.Module, examples: Examples, batches: int, size: int, rng: np.random.Generator
) -> Tensor:
    """Mean gradients of random mini-batches, one row each, in evaluation mode."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    with evaluating(model):
        for _ in range(batches):
            batch = torch.from_numpy(rng.choice(len(examples), min(size, len(examples)), replace=False))
            inputs, labels = moved(examples.batch(batch), device_of(model))
            loss = examples.readout.losses(call(model, inputs), labels, len(batch)).mean()
            gradients = torch.autograd.grad(loss, parameters)
            rows.append(torch.cat([gradient.flatten() for gradient in gradients]).cpu())
    return torch.stack(rows)


def _centred_gram(rows: Tensor) -> NDArray[np.float64]:
    """Inner products after subtracting the mean, which leaves the bound as it is and keeps the digits."""
    centred = rows - rows.mean(dim=0)
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for part in torch.split(centred, _CHUNK, dim=1):
        wide = part.double()
        gram += wide @ wide.T
    return np.asarray(gram.numpy())
