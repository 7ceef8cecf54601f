"""Stages for group losses: inner products of gradients along a training run, and the losses they give."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.data import Examples
from remanence.gradients import example_gradients_gram
from remanence.gradients.evaluation_mode import evaluating
from remanence.storage import Draft
from remanence.study.material import Inputs, Params, examples_of, forget_set_of, new_model, recipe_of
from remanence.study.stages import StageKind
from remanence.study.stages_of_training import ASSUMED_SIGMA
from remanence.theory.group import group_loss
from remanence.training import placed_steps, train_steps
from remanence.types import Mechanism

_CHUNK = 1 << 20


def _grams(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: forget sets. Trains the run anew, looking at the sets' gradients at a few moments."""
    train, _ = examples_of(params)
    recipe, seed = recipe_of(params), params["seed"]
    model = new_model(params, train, seed)
    moments = placed_steps(recipe.total_steps(len(train)), params["moments"], "log")
    sets = [forget_set_of(each).ids for each in inputs]
    rng = np.random.default_rng(seed)
    found: dict[str, list[NDArray[np.float64]]] = {}

    def look() -> None:
        common = _batch_gradients(model, train, params["batches"], recipe.batch_size, rng)
        for i, ids in enumerate(sets):
            some = train.take(
                ids[np.sort(rng.choice(len(ids), min(len(ids), params["size"]), replace=False))]
            )
            gram = example_gradients_gram(model, some.inputs, some.labels)
            others = _batch_gradients(model, train.without(ids), params["batches"], recipe.batch_size, rng)
            found.setdefault(f"set-{i}", []).append(gram.double().numpy())
            found.setdefault(f"batches-{i}", []).append(_centred_gram(torch.cat([common, others])))

    look()
    for step in train_steps(model, train, recipe, seed=seed):
        if step in moments:
            look()
    draft.tensors("grams", {"steps": moments, **{name: np.stack(each) for name, each in found.items()}})


def _batch_gradients(
    model: nn.Module, examples: Examples, batches: int, size: int, rng: np.random.Generator
) -> Tensor:
    """Mean gradients of random mini-batches, one row each, in evaluation mode."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    rows = []
    with evaluating(model):
        for _ in range(batches):
            batch = torch.from_numpy(rng.choice(len(examples), min(size, len(examples)), replace=False))
            loss = nn.functional.cross_entropy(model(examples.inputs[batch]), examples.labels[batch])
            rows.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, parameters)]))
    return torch.stack(rows)


def _centred_gram(rows: Tensor) -> NDArray[np.float64]:
    """Inner products after taking off the mean, which changes nothing of the bound and keeps the digits."""
    centred = rows - rows.mean(dim=0)
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for part in torch.split(centred, _CHUNK, dim=1):
        wide = part.double()
        gram += wide @ wide.T
    return np.asarray(gram.numpy())


def _group(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: the inner products. One row for each set, form and estimate."""
    grams = inputs[0].tensors("grams")
    train, _ = examples_of(params)
    mechanism = recipe_of(params).mechanism(len(train), assumed_sigma=ASSUMED_SIGMA)
    rows = [
        {"set": i, "sigma": sigma, "form": form, "estimate": estimate, "value": value}
        for i in range(params["sets"])
        for sigma in params["sigmas"]
        for estimate in range(params["estimates"])
        for form, value in _estimate(grams, i, mechanism, sigma, estimate, params).items()
    ]
    draft.rows("losses", rows)


def _estimate(
    grams: dict[str, NDArray[np.float64]],
    i: int,
    mechanism: Mechanism,
    sigma: float,
    estimate: int,
    params: Params,
) -> dict[str, float]:
    """The paper's form from a random half of the batches, the coupled one by other draws, its upper bound by none."""
    steps, own, batches = grams["steps"], grams[f"set-{i}"], grams[f"batches-{i}"]
    common = {"steps": steps, "mechanism": mechanism, "alpha": params["alpha"], "sigma": sigma}
    rng = np.random.default_rng((estimate, i))
    half = len(batches[0]) // 2
    ours, theirs = (np.sort(rng.choice(half, max(2, half // 2), replace=False)) for _ in range(2))
    rows = np.concatenate([ours, half + theirs])
    sampled = {"draws": params["draws"], "seed": estimate}
    found = {
        "coupled": group_loss(list(own), method="coupled", **common, **sampled).value,
        "independent": group_loss(
            [each[np.ix_(rows, rows)] for each in batches],
            method="independent",
            with_rows=len(ours),
            **common,
            **sampled,
        ).value,
    }
    if estimate == 0:
        found["upper"] = group_loss(list(own), method="upper", **common).value
    return {form: value for form, value in found.items() if np.isfinite(value)}


GRAMS = StageKind("grams", 1, _grams)
GROUP = StageKind("group", 1, _group)
