"""Where a tensor keeps its examples, found by comparing a batch with a single example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class DivergedError(Exception):
    """A batch ran different calls than a single example; the caller falls back to the loop."""


@dataclass(frozen=True)
class Layout:
    """Examples lie along `dim`; where each has several entries there, `major` says they are adjacent."""

    dim: int = 0
    major: bool = True

    def split(self, tensor: Tensor, n: int) -> Tensor:
        """A view [n, *shape for a batch of one]."""
        inner = tensor.shape[self.dim] // n
        if self.dim == 0 and inner == 1:
            return tensor.unsqueeze(1)
        sizes = (n, inner) if self.major else (inner, n)
        shape = (*tensor.shape[: self.dim], *sizes, *tensor.shape[self.dim + 1 :])
        return tensor.reshape(shape).movedim(self.dim if self.major else self.dim + 1, 0)


def find_layout(one: Sequence[int], many: Sequence[int], n: int) -> Layout | None:
    """The dimension that grew n-fold from a batch of one to a batch of n; None where nothing grew."""
    grown = [dim for dim, (a, b) in enumerate(zip(one, many, strict=False)) if a != b]
    if not grown and len(one) == len(many):
        return None
    if len(one) != len(many) or len(grown) > 1 or many[grown[0]] != n * one[grown[0]]:
        raise DivergedError(f"a tensor of shape {tuple(one)} became one of shape {tuple(many)}")
    return Layout(grown[0])


SAMPLE = 1024
"""Entries of a tensor that are enough to tell two orders apart."""


def sampled(tensor: Tensor) -> Tensor:
    """A copy of evenly spaced entries, however large the tensor."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLE)].clone()


def settle_order(layout: Layout, sample: Tensor, many: Tensor, n: int) -> Layout:
    """Decide whether entries of one example are adjacent, by comparing example 0's values with the batch."""
    if many.shape[layout.dim] == n:
        return layout
    minor = Layout(layout.dim, major=False)
    seen = (sampled(order.split(many, n)[0]).float() for order in (layout, minor))
    distance = [torch.linalg.vector_norm(values - sample.float()) for values in seen]
    return layout if bool(distance[0] <= distance[1]) else minor
