"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.gradients.layers.conv_gradients import Window, grouped_weight_gradients
from remanence.gradients.layers.conv_norms import (
    prefers_gram,
    weight_squared_norms,
    weight_squared_norms_and_sum,
)
from remanence.gradients.layers.linear import outer_squared_norms
from remanence.gradients.layers.rule import (
    Arguments,
    ByRole,
    Functions,
    ParameterUse,
    Roles,
    Rule,
    square_sum,
)


def _per_dimension(value: int | Sequence[int], dims: int) -> Sequence[int]:
    if isinstance(value, int):
        return (value,) * dims
    return tuple(value) * (dims if len(value) == 1 else 1)


class Conv(Rule):
    """Each example's weight gradient is itself a convolution: of its input with its output's gradient."""

    functions: ClassVar[Functions] = (torch.conv1d, torch.conv2d, torch.conv3d)
    arguments: ClassVar[Arguments] = {
        "input": None,
        "weight": None,
        "bias": None,
        "stride": 1,
        "padding": 0,
        "dilation": 1,
        "groups": 1,
        "output_padding": 0,
    }
    transposed = False

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Padding as numbers, the geometry with one number per dimension."""
        bound = super().bind(*args, **kwargs)
        dims = bound["weight"].dim() - 2
        bound["dilation"] = _per_dimension(bound["dilation"], dims)
        if bound["padding"] == "valid":
            bound["padding"] = 0
        elif bound["padding"] == "same":
            bound["input"], bound["padding"] = _same_padded(
                bound["input"], bound["weight"], bound["dilation"]
            )
        geometry = ("stride", "padding", "output_padding")
        return bound | {name: _per_dimension(bound[name], dims) for name in geometry}

    def claims(self, use: ParameterUse) -> bool:
        """A batch along the first dimension of a batched input."""
        return use.layout.dim == 0 and use.args["input"].dim() == use.args["weight"].dim()

    def gradients(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        gradients = {}
        g = use.split(use.grad)[start:stop]
        if "bias" in roles:
            gradients["bias"] = g.flatten(3).sum((1, 3))
        if "weight" in roles:
            gradients["weight"] = self._grouped(use, use.split(use.input)[start:stop], g)
        return gradients

    def _grouped(self, use: ParameterUse, x: Tensor, g: Tensor) -> Tensor:
        """One grouped convolution, the examples as groups: [b, *weight shape], an example's images added up."""
        args, weight = use.args, use.args["weight"]
        total: Tensor | None = None
        for k in range(x.shape[1]):
            part = grouped_weight_gradients(
                x[:, k],
                g[:, k],
                weight,
                (args["stride"], args["padding"], args["dilation"]),
                groups=args["groups"],
                transposed=self.transposed,
                output_padding=args["output_padding"],
            )
            total = part if total is None else total + part
        assert total is not None  # an example has at least one image
        return total

    def squared_norms(self, use: ParameterUse, roles: Roles) -> ByRole:
        """The cheapest exact form; the bias apart, since it needs no chunks."""
        norms = {}
        if "bias" in roles:
            norms["bias"] = square_sum(use.split(use.grad).flatten(3).sum((1, 3)))
        if "weight" in roles:
            if self._is_plane(use):
                norms["weight"] = self._plane_norms(use)
            else:
                norms |= super().squared_norms(use, ("weight",))
        return norms

    def builds_gradients(self, use: ParameterUse) -> bool:
        if not self._is_plane(use) or tuple(use.shape("weight")[2:]) == (1, 1) or "weight" not in use.sources:
            return False
        x, weight, window = use.input, use.args["weight"], self._window(use)
        sides = [window.size_out(axis, x.shape[2 + axis]) for axis in (0, 1)]
        return not prefers_gram(x.shape[2:], sides, x.shape[1], weight.shape[0], window)

    def norms_and_sums(self, use: ParameterUse, roles: Roles) -> tuple[ByRole, ByRole]:
        x, g = (t.permute(0, 2, 3, 1) for t in (use.input, use.grad))
        norms, sums = {}, {}
        if "bias" in roles:
            bias = use.grad.flatten(2).sum(2)
            norms["bias"], sums["bias"] = square_sum(bias), bias.sum(0)
        norms["weight"], sums["weight"] = weight_squared_norms_and_sum(x, g, self._window(use))
        return norms, sums

    def _window(self, use: ParameterUse) -> Window:
        args = use.args
        return Window(tuple(args["weight"].shape[2:]), args["stride"], args["padding"], args["dilation"])

    def _is_plane(self, use: ParameterUse) -> bool:
        """Two dimensions, no groups, one image per example: what `conv_norms` covers."""
        args = use.args
        return args["weight"].dim() == 4 and args["groups"] == 1 and len(args["input"]) == use.n

    def _plane_norms(self, use: ParameterUse) -> Tensor:
        x, g, args = use.input, use.grad, use.args
        if tuple(args["weight"].shape[2:]) == (1, 1) and not any(args["padding"]):
            x = x[:, :, :: args["stride"][0], :: args["stride"][1]]
            return outer_squared_norms(_positions(x), _positions(g), use.gram_cache)
        return weight_squared_norms(x.permute(0, 2, 3, 1), g.permute(0, 2, 3, 1), self._window(use))


def _positions(images: Tensor) -> Tensor:
    """[n, positions, channels]."""
    return images.permute(0, 2, 3, 1).flatten(1, 2)


class ConvTranspose(Conv):
    functions: ClassVar[Functions] = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
    arguments: ClassVar[Arguments] = {
        "input": None,
        "weight": None,
        "bias": None,
        "stride": 1,
        "padding": 0,
        "output_padding": 0,
        "groups": 1,
        "dilation": 1,
    }
    transposed = True

    def _is_plane(self, use: ParameterUse) -> bool:
        return False


def _same_padded(x: Tensor, weight: Tensor, dilation: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Symmetric padding as numbers; an odd one is applied to the input, as torch does."""
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if all(t % 2 == 0 for t in total):
        return x, [t // 2 for t in total]
    widths = [width for t in reversed(total) for width in (t // 2, t - t // 2)]
    return torch.nn.functional.pad(x, widths), [0] * len(total)
