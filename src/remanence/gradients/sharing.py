"""A node that carries parameters' gradients when a rule computes them on the way to the norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from remanence.gradients.precision import uncast_backward
from remanence.gradients.use import Use

Settle = Callable[[Use], dict[str, Tensor]]
"""Notes a use's squared norms and returns the batch's gradient for each role."""


class Carry(torch.autograd.Function):
    """The identity on an output; backward, the parameters get the sum of their per-example gradients."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, use: Use, settle: Settle, *parameters: Tensor) -> Tensor:
        """In place: the output is passed on as it is."""
        ctx.use, ctx.settle = use, settle
        ctx.roles = tuple(use.sources)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    @uncast_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """The gradient goes on unchanged."""
        ctx.use.grads[0] = grad
        summed = ctx.settle(ctx.use)
        return grad, None, None, *(summed[role] for role in ctx.roles)
