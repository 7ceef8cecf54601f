"""Parameters used outside layers, by broadcasting: position embeddings, layer scales, slopes."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.gradients.layers.rule import Arguments, ByRole, Functions, ParameterUse, Roles, Rule


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

    def claims(self, use: ParameterUse) -> bool:
        """One parameter, broadcast to a tensor that has examples."""
        if len(use.sources) != 1:
            return False
        (role,) = use.sources
        other = _other_operand(use)
        return isinstance(other, Tensor) and use.args[role].dim() <= other.dim()

    def contribution(self, use: ParameterUse, start: int, stop: int) -> Tensor:
        """[b, *one]: the parameter's gradient before broadcasting is undone."""
        return use.split(use.grad)[start:stop]

    def gradients(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        """Undo the broadcast, one example at a time."""
        (role,) = roles
        values = self.contribution(use, start, stop)
        shape = use.shape(role)
        lead = values.dim() - 1 - len(shape)
        broadcast = torch.Size([values.shape[0], *([1] * lead), *shape])
        return {role: values.sum_to_size(broadcast).reshape(values.shape[0], *shape)}


def _other_operand(use: ParameterUse) -> Any:
    """The operand that is not the parameter."""
    return use.args["left" if "right" in use.sources else "right"]


class Scale(Sum):
    """`x * p`."""

    functions = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)

    def contribution(self, use: ParameterUse, start: int, stop: int) -> Tensor:
        return use.split(use.grad)[start:stop] * use.split(_other_operand(use))[start:stop]


class Difference(Sum):
    """`x - p` or `p - x`."""

    functions = (torch.sub, Tensor.sub, Tensor.__sub__)

    def contribution(self, use: ParameterUse, start: int, stop: int) -> Tensor:
        g = use.split(use.grad)[start:stop]
        return g if "left" in use.sources else -g


class Quotient(Sum):
    """`x / p`; a parameter in the numerator is left to the general rule."""

    functions = (torch.div, Tensor.div, Tensor.__truediv__)

    def claims(self, use: ParameterUse) -> bool:
        return "right" in use.sources and super().claims(use)

    def contribution(self, use: ParameterUse, start: int, stop: int) -> Tensor:
        g, x = (use.split(t)[start:stop] for t in (use.grad, use.args["left"]))
        denominator: Tensor = use.args["right"]
        return -g * x / denominator.square()


class PReLU(Rule):
    """A learned slope below zero: one for all, or one per channel."""

    functions = (torch.prelu,)
    arguments: ClassVar[Arguments] = {"input": None, "weight": None}
    roles = ("weight",)

    def claims(self, use: ParameterUse) -> bool:
        return use.layout.dim == 0

    def gradients(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        x, g = use.split(use.input)[start:stop], use.split(use.grad)[start:stop]
        values = torch.where(x < 0, g * x, 0).reshape(*x.shape[:3], -1).sum((1, 3))
        return {"weight": values if use.shape("weight").numel() > 1 else values.sum(1, keepdim=True)}
