"""Embeddings: rows selected by index, gradients scattered back to them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from remanence.gradients.layers.rule import Arguments, ByRole, ParameterUse, Roles, Rule


class Embedding(Rule):
    """The gradient of a row is the sum of g over the positions that selected it."""

    functions = (torch.embedding,)
    arguments: ClassVar[Arguments] = {
        "weight": None,
        "indices": None,
        "padding_idx": -1,
        "scale_grad_by_freq": False,
        "sparse": False,
    }
    roles = ("weight",)

    def claims(self, use: ParameterUse) -> bool:
        """Gradients scaled by frequency couple a batch's examples: the general rule takes one at a time."""
        return not use.args["scale_grad_by_freq"]

    def _factors(self, use: ParameterUse) -> tuple[Tensor, Tensor]:
        """Indices [n, t] and gradients [n, t, d], those of the padding index zero."""
        index = use.split(use.args["indices"]).flatten(1)
        grad = use.split(use.grad).flatten(1, -2)
        padding = use.args["padding_idx"]
        if padding >= 0:
            grad = grad * (index != padding).unsqueeze(2)
        return index, grad

    def gradients(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        index, grad = (factor[start:stop] for factor in self._factors(use))
        dense = grad.new_zeros((stop - start, *use.shape("weight")))
        return {"weight": dense.scatter_add_(1, index.unsqueeze(2).expand_as(grad), grad)}

    def squared_norms(self, use: ParameterUse, roles: Roles) -> ByRole:
        """Add up positions that share a row, then square: a scatter into t rows, never the whole table."""
        index, grad = self._factors(use)
        ordered, order = index.sort(dim=1, stable=True)
        is_new_row = torch.ones_like(ordered)
        is_new_row[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).long()
        slot = (is_new_row.cumsum(1) - 1).unsqueeze(2).expand_as(grad)
        grad = grad.gather(1, order.unsqueeze(2).expand_as(grad))
        rows = torch.zeros_like(grad).scatter_add_(1, slot, grad)
        return {"weight": rows.flatten(1).square().sum(1)}
