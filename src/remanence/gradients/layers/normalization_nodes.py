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
    """The sums over positions that the scale and shift need are those that the input's gradient needs."""

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
        contiguous = ctx.use.args["input"].is_contiguous()
        dx = _group_norm_rows(ctx, grad) if contiguous else _group_norm_channels_last(ctx, grad)
        return dx, None, None, None, *_parameter_gradients(ctx, grad)


def _group_norm_rows(ctx: Any, grad: Tensor) -> Tensor | None:
    """All examples as one with n times the channels: torch then does not sum over examples."""
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
    return None if dx is None else dx.view_as(x)


def _group_norm_channels_last(ctx: Any, grad: Tensor) -> Tensor | None:
    """The same by hand: with channels last, torch's own backward pass takes several times as long.

    With x̂ = (x − μ)/σ and weight w, dx = (w g − mean(w g) − x̂ mean(w g x̂)) / σ, means over a group; those and the
    gradients of scale and shift follow from the same two sums over positions.
    """
    use, x, weight = ctx.use, ctx.use.args["input"], ctx.use.args["weight"]
    n, channels = x.shape[:2]
    groups = use.args["num_groups"]
    mean, rstd = (_by_channel(of, channels) for of in (ctx.mean, ctx.rstd))
    centered = x - mean
    scale = (centered * grad).sum((2, 3), keepdim=True).mul_(rstd)
    shift = grad.sum((2, 3), keepdim=True)
    use.saved = {"weight": scale.view(n, channels), "bias": shift.view(n, channels)}
    if not ctx.needs_input_grad[0]:
        return None
    slope, offset = (
        _by_channel((of.view(n, channels) * weight).view(n, groups, -1).mean(2) / ctx.size, channels)
        for of in (scale, shift)
    )
    dx: Tensor = torch.addcmul(rstd * -offset, grad, rstd * weight.view(-1, 1, 1))
    return dx.addcmul_(centered, rstd.square() * slope, value=-1)


def _by_channel(groups: Tensor, channels: int) -> Tensor:
    """Values of groups [n, groups] for each of their channels: [n, channels, 1, 1]."""
    return groups.repeat_interleave(channels // groups.shape[1], 1)[:, :, None, None]


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
