"""Parameters used outside layers, by broadcasting: position embeddings, layer scales, slopes."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.gradients.use import Functions, Rule, Use


class Sum(Rule):
    """`x + p`: the gradient of p is that of the sum, reduced to p's shape."""

    functions: ClassVar[Functions] = (
        torch.add,
        Tensor.add,
        Tensor.__add__,
        Tensor.__radd__,
        Tensor.add_,
        Tensor.__iadd__,
    )
    roles = ("left", "right")

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Two operands, either of them the parameter; a scaled sum is left to the general rule."""
        return {"left": args[0], "right": args[1]} if len(args) == 2 and not kwargs else {}

    def claims(self, use: Use) -> bool:
        """One parameter, broadcast to a tensor that has examples."""
        if len(use.sources) != 1:
            return False
        (role,) = use.sources
        other = use.args["left" if role == "right" else "right"]
        return isinstance(other, Tensor) and use.args[role].dim() <= other.dim()

    def contribution(self, use: Use, start: int, stop: int) -> Tensor:
        """[b, *one]: what reaches the parameter before broadcasting is undone."""
        return use.split(use.grad)[start:stop]

    def gradients(self, use: Use, roles: tuple[str, ...], start: int, stop: int) -> dict[str, Tensor]:
        """Undo the broadcast, one example at a time."""
        (role,) = roles
        values = self.contribution(use, start, stop)
        shape = use.shape(role)
        lead = values.dim() - 1 - len(shape)
        wide = torch.Size([values.shape[0], *([1] * lead), *shape])
        return {role: values.sum_to_size(wide).reshape(values.shape[0], *shape)}


class Scale(Sum):
    """`x * p`."""

    functions: ClassVar[Functions] = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)

    def contribution(self, use: Use, start: int, stop: int) -> Tensor:
        (role,) = use.sources
        other = use.args["left" if role == "right" else "right"]
        return use.split(use.grad)[start:stop] * use.split(other)[start:stop]


class Difference(Sum):
    """`x - p` or `p - x`."""

    functions: ClassVar[Functions] = (torch.sub, Tensor.sub, Tensor.__sub__)

    def contribution(self, use: Use, start: int, stop: int) -> Tensor:
        g = use.split(use.grad)[start:stop]
        return g if "left" in use.sources else -g


class Quotient(Sum):
    """`x / p`; a parameter above the line is left to the general rule."""

    functions: ClassVar[Functions] = (torch.div, Tensor.div, Tensor.__truediv__)

    def claims(self, use: Use) -> bool:
        return "right" in use.sources and super().claims(use)

    def contribution(self, use: Use, start: int, stop: int) -> Tensor:
        g, x = (use.split(t)[start:stop] for t in (use.grad, use.args["left"]))
        below: Tensor = use.args["right"]
        return -g * x / below.square()


class PReLU(Rule):
    """A learned slope below zero, one or one a channel."""

    functions = (torch.prelu,)
    roles = ("weight",)

    def bind(self, input: Tensor, weight: Tensor) -> dict[str, Any]:  # noqa: A002
        return {"input": input, "weight": weight}

    def claims(self, use: Use) -> bool:
        return use.layout.dim == 0

    def gradients(self, use: Use, roles: tuple[str, ...], start: int, stop: int) -> dict[str, Tensor]:
        x, g = use.split(use.input)[start:stop], use.split(use.grad)[start:stop]
        values = torch.where(x < 0, g * x, 0).reshape(*x.shape[:3], -1).sum((1, 3))
        return {"weight": values if use.shape("weight").numel() > 1 else values.sum(1, keepdim=True)}
