"""The loop: one example at a time through plain autograd. Slow, always right; the fast path answers to it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remanence.gradients.batches import Batch, call, rows, size_of
from remanence.gradients.losses import ExampleLoss, example_losses


def example_gradients(
    model: nn.Module, inputs: Batch, targets: Batch, loss: ExampleLoss, parameters: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradient of a single example (a batch of one); zeros where a parameter plays no part."""
    with torch.enable_grad():
        value = example_losses(loss, call(model, inputs), targets, 1)
        if not value.requires_grad:
            return value.detach(), {name: torch.zeros_like(p) for name, p in parameters.items()}
        gradients = torch.autograd.grad(value.sum(), list(parameters.values()), allow_unused=True)
    filled = {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
    }
    return value.detach(), filled


def loop_squared_norms(
    model: nn.Module, inputs: Batch, targets: Batch, loss: ExampleLoss, parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Each example's squared gradient norm by parameter, in float64, from batches of one."""
    columns: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for i in range(size_of(inputs)):
        one = rows(inputs, i, i + 1), rows(targets, i, i + 1)
        _, gradients = example_gradients(model, *one, loss, parameters)
        for name, gradient in gradients.items():
            columns[name].append(gradient.double().square().sum())
    return {name: torch.stack(values) for name, values in columns.items()}
