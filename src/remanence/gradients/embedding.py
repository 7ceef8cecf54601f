"""Embeddings: rows picked by index, gradients scattered back to them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from remanence.gradients.use import Rule, Use


class Embedding(Rule):
    """The gradient of a row is the sum of g over the positions that picked it."""

    functions = (torch.embedding,)
    roles = ("weight",)

    def bind(
        self,
        weight: Tensor,
        input: Tensor,  # noqa: A002
        padding_idx: int = -1,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> dict[str, Any]:
        return {"input": input, "weight": weight, "padding_idx": padding_idx, "scale": scale_grad_by_freq}

    def claims(self, use: Use) -> bool:
        """Gradients scaled by frequency couple a batch's examples: the general rule takes one at a time."""
        return not use.args["scale"]

    def factors(self, use: Use) -> tuple[Tensor, Tensor]:
        """Indices [n, t] and gradients [n, t, d], those of the padding index zero."""
        index = use.split(use.args["input"]).flatten(1)
        grad = use.split(use.grad).flatten(1, -2)
        padding = use.args["padding_idx"]
        if padding >= 0:
            grad = grad * (index != padding).unsqueeze(2)
        return index, grad

    def gradients(self, use: Use, roles: tuple[str, ...], start: int, stop: int) -> dict[str, Tensor]:
        """Scatter."""
        index, grad = (factor[start:stop] for factor in self.factors(use))
        dense = grad.new_zeros((stop - start, *use.shape("weight")))
        return {"weight": dense.scatter_add_(1, index.unsqueeze(2).expand_as(grad), grad)}

    def squared_norms(self, use: Use, roles: tuple[str, ...]) -> dict[str, Tensor]:
        """Add up positions that share a row, then square: a scatter into t rows, never the whole table."""
        index, grad = self.factors(use)
        ordered, order = index.sort(dim=1, stable=True)
        fresh = torch.ones_like(ordered)
        fresh[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).long()
        slot = (fresh.cumsum(1) - 1).unsqueeze(2).expand_as(grad)
        grad = grad.gather(1, order.unsqueeze(2).expand_as(grad))
        rows = torch.zeros_like(grad).scatter_add_(1, slot, grad)
        return {"weight": rows.flatten(1).square().sum(1)}
