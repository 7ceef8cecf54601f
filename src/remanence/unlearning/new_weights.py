"""New random weights for a model, drawn as its layers draw them when they are built."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from remanence.tasks.randomness import derive_seed

MakeModel = Callable[[], nn.Module]
"""Builds a new model with random weights."""


def redraw(model: nn.Module) -> dict[str, str]:
    """Draw the weights of every layer anew, in place, by its method `reset_parameters`, as the layers of torch have it.

    Returns:
        Name and type of the layers with parameters of their own that have no such method; these keep their weights.
    """
    kept = {}
    for name, module in model.named_modules():
        reset = getattr(module, "reset_parameters", None) or _own_reset(module)
        if callable(reset):
            reset()
        elif any(True for _ in module.parameters(recurse=False)):
            kept[name] = type(module).__name__
    return kept


def _own_reset(module: nn.Module) -> Callable[[], None] | None:
    return module._reset_parameters if isinstance(module, nn.MultiheadAttention) else None


def new_weights(model: nn.Module, seed: int, make_model: MakeModel | None = None) -> dict[str, Tensor]:
    """New random values for the parameters of a model, on its device; without those that cannot be drawn anew.

    They are drawn on the CPU: the same weights on every device.

    Args:
        model: the model, which stays as it is.
        seed: random seed of the run.
        make_model: builds a new model; by default every layer is drawn anew by its `reset_parameters`.
    """
    kept: dict[str, str] = {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, "reset"))
        if make_model is None:
            fresh = copy.deepcopy(model).cpu()
            kept = redraw(fresh)
        else:
            fresh = make_model()
    drawn = dict(fresh.named_parameters())
    return {
        name: drawn[name].detach().to(parameter.device)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and name.rpartition(".")[0] not in kept
    }
