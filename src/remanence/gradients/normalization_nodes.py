"""Nodes of normalisation layers: their backward pass leaves each image's sums for scale and shift behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from remanence.gradients.precision import uncast_backward
from remanence.gradients.use import Use


class FixedNormNode(torch.autograd.Function):
    """BatchNorm with running statistics."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, anchor: Tensor, use: Use, arrive: Callable[[Use], None], *parameters: Tensor
    ) -> Tensor:
        ctx.use, ctx.arrive = use, arrive
        return torch.batch_norm(**use.args)

    @staticmethod
    @uncast_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
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
    """All examples as one with n times the channels: what the library sums over examples then stays apart."""

    @staticmethod
    def forward(
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
    @uncast_backward
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
        return None if dx is None else dx.view_as(x), None, None, None, *_delivered(ctx, grad)


class LayerNormNode(torch.autograd.Function):
    """The native backward pass gives the input's gradient; each row's sums are one product with 1/σ."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, anchor: Tensor, use: Use, arrive: Callable[[Use], None], *parameters: Tensor
    ) -> Tensor:
        ctx.use, ctx.arrive, args = use, arrive, use.args
        out, ctx.mean, ctx.rstd = torch.native_layer_norm(
            args["input"], args["normalized_shape"], args["weight"], args["bias"], args["eps"]
        )
        return out

    @staticmethod
    @uncast_backward
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
        return dx, None, None, None, *_delivered(ctx, grad)


def _delivered(ctx: Any, grad: Tensor) -> list[Tensor]:
    """Hand the use on, and return what the parameters that came as inputs get: sums over all examples."""
    use = ctx.use
    wanted = ctx.needs_input_grad[4:]
    sums = [use.saved[role].sum(0) for role, _ in zip(use.sources, wanted, strict=False)]
    use.grads[0] = grad
    ctx.arrive(use)
    return sums
