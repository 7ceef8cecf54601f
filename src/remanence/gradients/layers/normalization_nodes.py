"""Autograd nodes of normalization layers: the backward pass saves each image's gradient of scale and shift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from remanence.gradients.layers.rule import ParameterUse
from remanence.gradients.precision import backward_without_autocast


class FixedNormNode(torch.autograd.Function):
    """BatchNorm with running statistics."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        use: ParameterUse,
        on_gradient: Callable[[ParameterUse], None],
        *parameters: Tensor,
    ) -> Tensor:
        ctx.use, ctx.on_gradient = use, on_gradient
        return torch.batch_norm(**use.args)

    @staticmethod
    @backward_without_autocast
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        use, args = ctx.use, ctx.use.args
        positions = tuple(range(2, grad.dim()))
        inverse_std = (args["running_var"] + args["eps"]).rsqrt()
        dx = None
        if ctx.needs_input_grad[0]:
            scale = inverse_std if args["weight"] is None else inverse_std * args["weight"]
            dx = grad * scale.view(-1, *([1] * len(positions)))
        mean = args["running_mean"].view(-1, *([1] * len(positions)))
        # sums over positions of each image; the rule adds up those of one example
        use.saved = {"bias": grad.sum(positions) if positions else grad}
        if "weight" in use.sources:
            product = (args["input"] - mean).mul_(grad)
            use.saved["weight"] = (product.sum(positions) if positions else product) * inverse_std
        return dx, None, None, None, *_parameter_gradients(ctx, grad)


class GroupNormNode(torch.autograd.Function):
    """All examples as one with n times the channels: torch then does not sum over examples."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        use: ParameterUse,
        on_gradient: Callable[[ParameterUse], None],
        *parameters: Tensor,
    ) -> Tensor:
        ctx.use, ctx.on_gradient = use, on_gradient
        args, n, channels = use.args, *x.shape[:2]
        ctx.size = x[0, 0].numel()
        out, ctx.mean, ctx.rstd = torch.native_group_norm(
            args["input"],
            args["weight"],
            args["bias"],
            n,
            channels,
            ctx.size,
            args["num_groups"],
            args["eps"],
        )
        return out

    @staticmethod
    @backward_without_autocast
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        use, x, weight = ctx.use, ctx.use.args["input"], ctx.use.args["weight"]
        n, channels = x.shape[:2]
        dx, scale, shift = torch.ops.aten.native_group_norm_backward(
            grad.reshape(1, n * channels, ctx.size),
            x.view(1, n * channels, ctx.size),
            ctx.mean.view(1, -1),
            ctx.rstd.view(1, -1),
            weight.detach().repeat(n),
            1,
            n * channels,
            ctx.size,
            ctx.mean.numel(),
            [ctx.needs_input_grad[0], True, True],
        )
        use.saved = {"weight": scale.view(n, channels), "bias": shift.view(n, channels)}
        return None if dx is None else dx.view_as(x), None, None, None, *_parameter_gradients(ctx, grad)


class LayerNormNode(torch.autograd.Function):
    """Torch gives the input's gradient; each row's sums are one product with 1/σ."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        use: ParameterUse,
        on_gradient: Callable[[ParameterUse], None],
        *parameters: Tensor,
    ) -> Tensor:
        ctx.use, ctx.on_gradient, args = use, on_gradient, use.args
        out, ctx.mean, ctx.rstd = torch.native_layer_norm(
            args["input"], args["normalized_shape"], args["weight"], args["bias"], args["eps"]
        )
        return out

    @staticmethod
    @backward_without_autocast
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        use, args = ctx.use, ctx.use.args
        x, shape = args["input"], args["weight"].shape
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.ops.aten.native_layer_norm_backward(
                grad,
                x,
                args["normalized_shape"],
                ctx.mean,
                ctx.rstd,
                args["weight"],
                args["bias"],
                [True, False, False],
            )[0]
        rows, positions = len(x), ctx.mean[0].numel()
        products = (x - ctx.mean).mul_(grad).view(rows, positions, -1)
        scale = torch.bmm(ctx.rstd.view(rows, 1, positions), products)
        shift = grad.reshape(rows, positions, -1).sum(1)
        use.saved = {"weight": scale.view(rows, *shape), "bias": shift.view(rows, *shape)}
        return dx, None, None, None, *_parameter_gradients(ctx, grad)


def _parameter_gradients(ctx: Any, grad: Tensor) -> list[Tensor]:
    """Report the use, and return the gradients of the parameters that are inputs of the node."""
    use = ctx.use
    passed = len(ctx.needs_input_grad) - 4
    sums = [use.saved[role].sum(0) for role in list(use.sources)[:passed]]
    use.grads[0] = grad
    ctx.on_gradient(use)
    return sums
