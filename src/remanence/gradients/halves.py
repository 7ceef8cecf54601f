"""Gram matrices of positions, the upper half only: block rows that start at the diagonal."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

BLOCK = 32
"""Rows of a block: few enough to save nearly half, enough to keep a matrix product busy."""
GRAM_TRUST = 0.1
"""A Gram sum below this share of what it could be, over positions, has cancelled too many digits.

Norms just above it are off by up to 3e-6 in float32, in inverse proportion; networks lie near 1.
"""

Half = list[Tensor]
"""Block rows [n, r, t - first]: inner products of r positions with themselves and all later ones."""


def half_gram(x: Tensor) -> Half:
    """Inner products of positions for x [n, t, d]."""
    t = x.shape[1]
    blocks = max(1, t // BLOCK)
    # the odd rows go to the first block: products with whole blocks are the fast ones
    edges = [0, *(t - BLOCK * (blocks - k) for k in range(1, blocks + 1))]
    turned = x.transpose(1, 2)
    return [torch.bmm(x[:, start:stop], turned[:, :, start:]) for start, stop in pairwise(edges)]


class Shared:
    """The latest input and its Gram matrix: projections of one input (query, key, value) come in a row."""

    def __init__(self) -> None:
        self.x: Tensor | None = None
        self.half: Half = []

    def release(self) -> None:
        """Let go of both."""
        self.x, self.half = None, []

    def gram(self, x: Tensor) -> Half:
        """`half_gram`, computed once for layers that read the same tensor one after the other."""
        if self.x is None or not _same(self.x, x):
            # holding on to x keeps its memory from being given to another tensor
            self.x, self.half = x, half_gram(x)
        return self.half


def _same(a: Tensor, b: Tensor) -> bool:
    place = (a.data_ptr(), a.shape, a.stride(), a.dtype, a._version)
    return place == (b.data_ptr(), b.shape, b.stride(), b.dtype, b._version)


def matching(full: Tensor, like: Half) -> Half:
    """The same block rows of a whole symmetric matrix [n, t, t]."""
    rows, start = [], 0
    for block in like:
        rows.append(full[:, start : start + block.shape[1], start:])
        start += block.shape[1]
    return rows


def trace(half: Half) -> Tensor:
    """Sum of the diagonal."""
    total: Tensor = sum(block.diagonal(dim1=1, dim2=2).sum(1) for block in half)  # type: ignore[assignment]
    return total


def entries_sum(half: Half) -> Tensor:
    """Sum of all entries, those off the diagonal blocks counted twice.

    By columns, and those in double precision where there is one: entries cancel.
    """
    wide = torch.float32 if half[0].device.type == "mps" else torch.float64
    total: Tensor = sum(  # type: ignore[assignment]
        2 * block.sum(1).sum(1, dtype=wide) - block[:, :, : block.shape[1]].sum(1).sum(1, dtype=wide)
        for block in half
    )
    return total.to(half[0].dtype)


def paired(left: Half, right: Half) -> Tensor:
    """Σ of products of entries of two matrices; `right` is overwritten."""
    return entries_sum([b.mul_(a) for a, b in zip(left, right, strict=True)])
