"""Nodes of normalisation layers: their backward pass leaves each image's sums for scale and shift behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from remanence.gradients.use import Use, chunks

CACHED_BYTES = 1 << 20
"""A few examples' activations: larger temporaries cost more in fresh memory than in arithmetic."""


class FixedNormNode(torch.autograd.Function):
    """BatchNorm with running statistics."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, x: Tensor, anchor: Tensor, use: Use, arrive: Callable[[Use], None], *parameters: Tensor
    ) -> Tensor:
        ctx.use, ctx.arrive = use, arrive
        return torch.batch_norm(**use.args)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: D102
        use, args = ctx.use, ctx.use.args
        positions = tuple(range(2, grad.dim()))
        spread = (args["running_var"] + args["eps"]).rsqrt()
        dx = None
        if ctx.needs_input_grad[0]:
            scale = spread if args["weight"] is None else spread * args["weight"]
            dx = grad * scale.view(-1, *([1] * len(positions)))
        mean = args["running_mean"].view(-1, *([1] * len(positions)))
        # sums over positions of each image; the rule adds up those of one example
        use.saved = {"bias": grad.sum(positions) if positions else grad}
        if "weight" in use.sources:
            product = (args["input"] - mean).mul_(grad)
            use.saved["weight"] = (product.sum(positions) if positions else product) * spread
        return dx, None, None, None, *_delivered(ctx, grad)


class GroupNormNode(torch.autograd.Function):
    """The sums that the scale and shift need, and the input's gradient from the same."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, x: Tensor, anchor: Tensor, use: Use, arrive: Callable[[Use], None], *parameters: Tensor
    ) -> Tensor:
        ctx.use, ctx.arrive = use, arrive
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
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: D102
        use, x = ctx.use, ctx.use.args["input"]
        backward = _examples_as_channels if x.is_contiguous() else _channels_last
        dx, scale, shift = backward(ctx, grad, x, use.args["weight"].detach())
        use.saved = {"weight": scale, "bias": shift}
        return dx, None, None, None, *_delivered(ctx, grad)


def _examples_as_channels(
    ctx: Any, grad: Tensor, x: Tensor, weight: Tensor
) -> tuple[Tensor | None, Tensor, Tensor]:
    """All examples as one with n times the channels: what the library sums over examples then stays apart."""
    n, channels = x.shape[:2]
    dx, scale, shift = torch.ops.aten.native_group_norm_backward(
        grad.reshape(1, n * channels, ctx.size),
        x.view(1, n * channels, ctx.size),
        ctx.mean.view(1, -1),
        ctx.rstd.view(1, -1),
        weight.repeat(n),
        1,
        n * channels,
        ctx.size,
        ctx.mean.numel(),
        [ctx.needs_input_grad[0], True, True],
    )
    return None if dx is None else dx.view_as(x), scale.view(n, channels), shift.view(n, channels)


def _channels_last(ctx: Any, grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    """The library's own pass is slow in this order; by hand, a few examples at a time, as in the cache."""
    n, channels = x.shape[:2]
    one = channels // ctx.mean.shape[1]
    grad = grad.contiguous(memory_format=torch.channels_last)
    mean, rstd = (part.repeat_interleave(one, 1) for part in (ctx.mean, ctx.rstd))
    parts = list(chunks(n, channels * ctx.size, x, CACHED_BYTES))
    centred = ((x[i:j] - mean[i:j, :, None, None]).mul_(grad[i:j]).sum((2, 3)) for i, j in parts)
    scale, shift = torch.cat(list(centred)).mul_(rstd), grad.sum((2, 3))
    if not ctx.needs_input_grad[0]:
        return None, scale, shift
    # dx = (g w − mean of g w − x̂ · mean of g w x̂) / σ, the means over a group: a sum of three products
    means = (torch.stack([shift, scale]) * weight).view(2, n, -1, one).mean(3) / ctx.size
    first, second = means.repeat_interleave(one, 2)
    by_x = -rstd * rstd * second
    by_one = -rstd * first - by_x * mean
    by_grad = rstd * weight
    dx = torch.empty_like(x)
    for i, j in parts:
        one_, x_, grad_ = (factor[i:j, :, None, None] for factor in (by_one, by_x, by_grad))
        torch.addcmul(one_, x[i:j], x_, out=dx[i:j]).addcmul_(grad[i:j], grad_)
    return dx, scale, shift


class LayerNormNode(torch.autograd.Function):
    """The native backward pass gives the input's gradient; each row's sums are one product with 1/σ."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, x: Tensor, anchor: Tensor, use: Use, arrive: Callable[[Use], None], *parameters: Tensor
    ) -> Tensor:
        ctx.use, ctx.arrive, args = use, arrive, use.args
        out, ctx.mean, ctx.rstd = torch.native_layer_norm(
            args["input"], args["normalized_shape"], args["weight"], args["bias"], args["eps"]
        )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # noqa: D102
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
        return dx, None, None, None, *_delivered(ctx, grad)


def _delivered(ctx: Any, grad: Tensor) -> list[Tensor]:
    """Hand the use on, and return what the parameters that came as inputs get: sums over all examples."""
    use = ctx.use
    wanted = ctx.needs_input_grad[4:]
    sums = [use.saved[role].sum(0) for role, _ in zip(use.sources, wanted, strict=False)]
    use.grads[0] = grad
    ctx.arrive(use)
    return sums
