"""One example at a time through plain autograd: slow, always right; the fast path is checked against it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from remanence.batches import Batch, call, single, size_of
from remanence.gradients.precision import widest_float, without_autocast
from remanence.losses import ExampleLoss, example_losses


def gradients_of(value: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of one loss; zeros for parameters that it does not depend on."""
    if not value.requires_grad:
        return {name: torch.zeros_like(p) for name, p in parameters.items()}
    with without_autocast(value.device.type):
        gradients = torch.autograd.grad(value.sum(), list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else dense(gradient)
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
    }


def dense(gradient: Tensor) -> Tensor:
    """The gradient as a dense tensor; that of an embedding may be sparse."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def squared_norms_of(value: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The squared norm of one loss's gradient by parameter, in double precision where the device has it.

    Each gradient is freed once it is squared, so that only one is in memory at a time.
    """
    wide = widest_float(value.device)
    squares = {name: torch.zeros(1, dtype=wide, device=value.device) for name in parameters}
    if not value.requires_grad:
        return squares

    def square(name: str, gradient: Tensor) -> Tensor:
        squares[name] = _squared(gradient, wide)[None]
        return (
            torch.zeros_like(gradient) if gradient.is_sparse else gradient.new_zeros(()).expand_as(gradient)
        )

    hooks = [p.register_hook(partial(square, name)) for name, p in parameters.items()]  # type: ignore[no-untyped-call]
    try:
        with without_autocast(value.device.type):
            torch.autograd.grad(value.sum(), list(parameters.values()), allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return squares


def _squared(gradient: Tensor, wide: torch.dtype) -> Tensor:
    """In pieces, so that a large gradient is never copied to double precision as a whole."""
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
