"""Linear layers, over any leading dimensions: an outer product for each position."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.gradients.layers.gram_blocks import (
    GRAM_TRUST,
    GramCache,
    entries_sum,
    product_sum,
    trace,
    upper_gram,
)
from remanence.gradients.layers.rule import (
    Arguments,
    ByRole,
    Functions,
    ParameterUse,
    Roles,
    Rule,
    chunks,
    square_sum,
    square_sum_,
)
from remanence.machine.norm_constants import norm_constants


class Linear(Rule):
    """y = x Wᵀ + b with positions t: the gradient of W is Σₜ gₜ xₜᵀ, that of b is Σₜ gₜ."""

    functions: ClassVar[Functions] = (torch._C._nn.linear,)
    arguments: ClassVar[Arguments] = {"input": None, "weight": None, "bias": None}

    def claims(self, use: ParameterUse) -> bool:
        """All but a batch along the features."""
        return use.layout.dim < use.input.dim() - 1

    def _factors(self, use: ParameterUse) -> tuple[Tensor, Tensor]:
        """Inputs [n, t, d] and output gradients [n, t, p]."""
        return tuple(  # type: ignore[return-value]
            use.split(tensor).flatten(1, -2) for tensor in (use.input, use.grad)
        )

    def gradients(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        x, g = (factor[start:stop] for factor in self._factors(use))
        gradients = {}
        if "weight" in roles:
            gradients["weight"] = self._weight_gradients(x, g)
        if "bias" in roles:
            gradients["bias"] = g.sum(1)
        return gradients

    def _weight_gradients(self, x: Tensor, g: Tensor) -> Tensor:
        """[b, p, d]."""
        return torch.bmm(g.transpose(1, 2), x)

    def squared_norms(self, use: ParameterUse, roles: Roles) -> ByRole:
        """The cheaper of the Gram and building the gradients; a bias is an input that is always one."""
        x, g = self._factors(use)
        t, d, p = x.shape[1], x.shape[2], g.shape[2]
        if "weight" in roles and prefers_gram(t, d, p):
            return dict(zip(("weight", "bias"), gram_squared_norms(x, g, use.gram_cache), strict=True))
        norms = {}
        if "bias" in roles:
            norms["bias"] = square_sum(g.sum(1) if t > 1 else g)
        if "weight" in roles:
            norms["weight"] = outer_squared_norms(x, g, use.gram_cache)
        return norms


class Product(Linear):
    """`x @ W` and `torch.addmm(b, x, W)`: a linear layer with its weight transposed."""

    functions: ClassVar[Functions] = (
        torch.matmul,
        Tensor.matmul,
        Tensor.__matmul__,
        torch.mm,
        Tensor.mm,
        torch.addmm,
    )

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """`matmul(x, W)` or `addmm(b, x, W)`; scaled sums and other forms are left to the general rule."""
        if kwargs or len(args) not in (2, 3):
            return {}
        bias = args[0] if len(args) == 3 else None
        return {"input": args[-2], "weight": args[-1], "bias": bias}

    def claims(self, use: ParameterUse) -> bool:
        """A matrix on the right, a batch on the left, a bias of one row."""
        bias, weight = use.args["bias"], use.args["weight"]
        plain = weight.dim() == 2 and (bias is None or bias.dim() == 1)
        return plain and use.args["input"].dim() > 1 and super().claims(use)

    def _weight_gradients(self, x: Tensor, g: Tensor) -> Tensor:
        """[b, d, p]."""
        return torch.bmm(x.transpose(1, 2), g)


def prefers_gram(t: int, d: int, p: int) -> bool:
    """Compare the multiply-adds of both forms."""
    return t > 1 and t * (d + p) * norm_constants().gram_share < d * p


def outer_squared_norms(x: Tensor, g: Tensor, gram_cache: GramCache) -> Tensor:
    """‖Σₜ gₜ xₜᵀ‖² of each example for x [n, t, d] and g [n, t, p]."""
    if x.shape[1] == 1:
        return square_sum(x) * square_sum(g)
    if prefers_gram(x.shape[1], x.shape[2], g.shape[2]):
        return gram_squared_norms(x, g, gram_cache)[0]
    return built_squared_norms(x, g)


def built_squared_norms(x: Tensor, g: Tensor) -> Tensor:
    """The same, from gradients that are built in chunks."""
    n, _, d = x.shape
    p = g.shape[2]
    parts = [square_sum_(torch.bmm(g[i:j].transpose(1, 2), x[i:j])) for i, j in chunks(n, d * p, x)]
    return torch.cat(parts)


def gram_squared_norms(x: Tensor, g: Tensor, gram_cache: GramCache) -> tuple[Tensor, Tensor]:
    """‖Σₜ gₜ xₜᵀ‖² = Σ over pairs of positions of (x·x')(g·g'), and ‖Σₜ gₜ‖², likewise.

    For examples where a sum cancels, the gradient is built.
    """
    x_gram, g_gram = gram_cache.gram(x), upper_gram(g)
    g_trace = trace(g_gram)
    bias = entries_sum(g_gram)
    weight = product_sum(x_gram, g_gram)
    trust = GRAM_TRUST / x.shape[1]
    doubtful = (weight < trace(x_gram) * g_trace * trust).nonzero().flatten()
    if doubtful.numel():
        weight[doubtful] = built_squared_norms(x[doubtful], g[doubtful])
    doubtful = (bias < g_trace * x.shape[1] * trust).nonzero().flatten()
    if doubtful.numel():
        bias[doubtful] = square_sum(g[doubtful].sum(1))
    return weight, bias
