"""Linear layers, over any leading dimensions: an outer product for each position."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.gradients.halves import GRAM_TRUST, Shared, half_gram, paired, trace
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
        """The cheaper of the Gram and the materialised form."""
        x, g = self.factors(use)
        found = {}
        if "bias" in roles:
            found["bias"] = square_sum(g.sum(1)) if g.shape[1] > 1 else square_sum(g)
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


def outer_squared_norms(x: Tensor, g: Tensor, shared: Shared) -> Tensor:
    """‖Σₜ gₜ xₜᵀ‖² of each example for x [n, t, d] and g [n, t, p]."""
    t, d = x.shape[1:]
    p = g.shape[2]
    if t == 1:
        return square_sum(x) * square_sum(g)
    # a Gram matrix is symmetric: about half of t² entries are computed
    if t * (d + p) * 0.6 >= d * p:
        return _materialised(x, g)
    return _gram(x, g, shared)


def _materialised(x: Tensor, g: Tensor) -> Tensor:
    n, _, d = x.shape
    p = g.shape[2]
    parts = [square_sum_(torch.bmm(g[i:j].transpose(1, 2), x[i:j])) for i, j in chunks(n, d * p, x)]
    return torch.cat(parts)


def _gram(x: Tensor, g: Tensor, shared: Shared) -> Tensor:
    """Σ over pairs of positions of (x·x')(g·g'); examples where that cancels are materialised."""
    x_gram, g_gram = shared.gram(x), half_gram(g)
    largest = trace(x_gram) * trace(g_gram)
    total = paired(x_gram, g_gram)
    doubtful = (total < largest * (GRAM_TRUST / x.shape[1])).nonzero().flatten()
    if doubtful.numel():
        total[doubtful] = _materialised(x[doubtful], g[doubtful])
    return total
