"""Linear layers, over any leading dimensions: an outer product for each position."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.gradients.halves import GRAM_TRUST, Shared, entries_sum, half_gram, paired, trace
from remanence.gradients.use import Functions, Rule, Use, chunks, square_sum, square_sum_


class Linear(Rule):
    """y = x Wᵀ + b with positions t: the gradient of W is Σₜ gₜ xₜᵀ, that of b is Σₜ gₜ."""

    functions: ClassVar[Functions] = (torch._C._nn.linear,)

    def bind(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> dict[str, Any]:  # noqa: A002
        """The arguments of `torch.nn.functional.linear`."""
        return {"input": input, "weight": weight, "bias": bias}

    def claims(self, use: Use) -> bool:
        """All but a batch along the features."""
        return use.layout.dim < use.input.dim() - 1

    def factors(self, use: Use) -> tuple[Tensor, Tensor]:
        """Inputs [n, t, d] and output gradients [n, t, p]."""
        return tuple(  # type: ignore[return-value]
            use.split(tensor).flatten(1, -2) for tensor in (use.input, use.grad)
        )

    def gradients(self, use: Use, roles: tuple[str, ...], start: int, stop: int) -> dict[str, Tensor]:
        """One batched product, one sum."""
        x, g = (factor[start:stop] for factor in self.factors(use))
        found = {}
        if "weight" in roles:
            found["weight"] = self.weight_gradients(x, g)
        if "bias" in roles:
            found["bias"] = g.sum(1)
        return found

    def weight_gradients(self, x: Tensor, g: Tensor) -> Tensor:
        """[b, p, d]."""
        return torch.bmm(g.transpose(1, 2), x)

    def squared_norms(self, use: Use, roles: tuple[str, ...]) -> dict[str, Tensor]:
        """The cheaper of the Gram and the materialised form; a bias is an input that is always one."""
        x, g = self.factors(use)
        t, d, p = x.shape[1], x.shape[2], g.shape[2]
        if "weight" in roles and prefers_gram(t, d, p):
            return dict(zip(("weight", "bias"), gram_squared_norms(x, g, use.shared), strict=True))
        found = {}
        if "bias" in roles:
            found["bias"] = square_sum(g.sum(1) if t > 1 else g)
        if "weight" in roles:
            found["weight"] = outer_squared_norms(x, g, use.shared)
        return found


class Product(Linear):
    """`x @ W` and `torch.addmm(b, x, W)`: a linear layer with its weight the other way round."""

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

    def claims(self, use: Use) -> bool:
        """A matrix on the right, a batch on the left, a bias of one row."""
        bias, weight = use.args["bias"], use.args["weight"]
        plain = weight.dim() == 2 and (bias is None or bias.dim() == 1)
        return plain and use.args["input"].dim() > 1 and super().claims(use)

    def weight_gradients(self, x: Tensor, g: Tensor) -> Tensor:
        """[b, d, p]."""
        return torch.bmm(x.transpose(1, 2), g)


def prefers_gram(t: int, d: int, p: int) -> bool:
    """Multiply-adds of both forms, counted; about half of a symmetric Gram matrix is computed."""
    return t > 1 and t * (d + p) * 0.6 < d * p


def outer_squared_norms(x: Tensor, g: Tensor, shared: Shared) -> Tensor:
    """‖Σₜ gₜ xₜᵀ‖² of each example for x [n, t, d] and g [n, t, p]."""
    if x.shape[1] == 1:
        return square_sum(x) * square_sum(g)
    if prefers_gram(x.shape[1], x.shape[2], g.shape[2]):
        return gram_squared_norms(x, g, shared)[0]
    return _materialised(x, g)


def _materialised(x: Tensor, g: Tensor) -> Tensor:
    n, _, d = x.shape
    p = g.shape[2]
    parts = [square_sum_(torch.bmm(g[i:j].transpose(1, 2), x[i:j])) for i, j in chunks(n, d * p, x)]
    return torch.cat(parts)


def gram_squared_norms(x: Tensor, g: Tensor, shared: Shared) -> tuple[Tensor, Tensor]:
    """‖Σₜ gₜ xₜᵀ‖² = Σ over pairs of positions of (x·x')(g·g'), and ‖Σₜ gₜ‖², likewise.

    Examples where a sum cancels are computed the other way.
    """
    x_gram, g_gram = shared.gram(x), half_gram(g)
    g_trace = trace(g_gram)
    bias = entries_sum(g_gram)
    weight = paired(x_gram, g_gram)
    trust = GRAM_TRUST / x.shape[1]
    doubtful = (weight < trace(x_gram) * g_trace * trust).nonzero().flatten()
    if doubtful.numel():
        weight[doubtful] = _materialised(x[doubtful], g[doubtful])
    doubtful = (bias < g_trace * x.shape[1] * trust).nonzero().flatten()
    if doubtful.numel():
        bias[doubtful] = square_sum(g[doubtful].sum(1))
    return weight, bias
