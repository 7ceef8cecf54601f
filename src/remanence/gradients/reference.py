"""The loop: one example at a time through plain autograd. Slow, always right; the fast path answers to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from remanence.gradients.batches import Batch, call, single, size_of
from remanence.gradients.losses import ExampleLoss, example_losses
from remanence.gradients.precision import uncast


def gradients_of(value: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of one loss; zeros where a parameter plays no part."""
    if not value.requires_grad:
        return {name: torch.zeros_like(p) for name, p in parameters.items()}
    with uncast(value.device.type):
        gradients = torch.autograd.grad(value.sum(), list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else dense(gradient)
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
    }


def dense(gradient: Tensor) -> Tensor:
    """The gradient whole; that of an embedding may come as its rows alone."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def squared_norms_of(value: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The squared norm of one loss's gradient by parameter, in double precision where there is one.

    A gradient is let go of as soon as it is squared, so that never more than one is whole in memory.
    """
    wide = torch.float32 if value.device.type == "mps" else torch.float64
    found = {name: torch.zeros(1, dtype=wide, device=value.device) for name in parameters}
    if not value.requires_grad:
        return found

    def square(name: str, gradient: Tensor) -> Tensor:
        found[name] = _squared(gradient, wide)[None]
        return (
            torch.zeros_like(gradient) if gradient.is_sparse else gradient.new_zeros(()).expand_as(gradient)
        )

    hooks = [p.register_hook(partial(square, name)) for name, p in parameters.items()]  # type: ignore[no-untyped-call]
    try:
        with uncast(value.device.type):
            torch.autograd.grad(value.sum(), list(parameters.values()), allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _squared(gradient: Tensor, wide: torch.dtype) -> Tensor:
    """In pieces, so that a large gradient is never whole in double precision."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    pieces = torch.split(values.reshape(-1), 1 << 18)
    return torch.stack([piece.to(wide).square().sum() for piece in pieces]).sum()


def loop_squared_norms(
    model: nn.Module, inputs: Batch, targets: Batch, loss: ExampleLoss, parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Each example's squared gradient norm by parameter, from batches of one."""
    columns: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for i in range(size_of(inputs)):
        with torch.enable_grad():
            value = example_losses(loss, call(model, single(inputs, i)), single(targets, i), 1)
            for name, squared in squared_norms_of(value, parameters).items():
                columns[name].append(squared)
    return {name: torch.cat(values) for name, values in columns.items()}
