"""Gram matrices of positions, the upper half only: block rows that start at the diagonal."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from remanence.gradients.precision import widest_float

BLOCK = 32
"""Rows of a block: few enough to save nearly half, enough for an efficient matrix product."""
GRAM_TRUST = 0.1
"""A Gram sum below this share of its largest possible value, over positions, has cancelled too many digits.

Norms just above it are off by up to 3e-6 in float32, in inverse proportion; networks lie near 1.
"""

UpperBlocks = list[Tensor]
"""Block rows [n, r, t - first]: inner products of r positions with themselves and all later ones."""


def upper_gram(x: Tensor) -> UpperBlocks:
    """Inner products of positions for x [n, t, d]."""
    t = x.shape[1]
    blocks = max(1, t // BLOCK)
    # the odd rows go to the first block: products with whole blocks are the fast ones
    edges = [0, *(t - BLOCK * (blocks - k) for k in range(1, blocks + 1))]
    transposed = x.transpose(1, 2)
    return [torch.bmm(x[:, start:stop], transposed[:, :, start:]) for start, stop in pairwise(edges)]


class GramCache:
    """The latest input and its Gram matrix: layers that read one input (query, key, value) follow each other."""

    def __init__(self) -> None:
        self.x: Tensor | None = None
        self.blocks: UpperBlocks = []

    def release(self) -> None:
        self.x, self.blocks = None, []

    def gram(self, x: Tensor) -> UpperBlocks:
        """`upper_gram`, computed once for consecutive layers that read the same tensor."""
        if self.x is None or not _same(self.x, x):
            # keeping x alive prevents its memory from being reused for another tensor
            self.x, self.blocks = x, upper_gram(x)
        return self.blocks


def _same(a: Tensor, b: Tensor) -> bool:
    identity = (a.data_ptr(), a.shape, a.stride(), a.dtype, a._version)
    return identity == (b.data_ptr(), b.shape, b.stride(), b.dtype, b._version)


def blocks_like(full: Tensor, like: UpperBlocks) -> UpperBlocks:
    """The same block rows of a whole symmetric matrix [n, t, t]."""
    rows, start = [], 0
    for block in like:
        rows.append(full[:, start : start + block.shape[1], start:])
        start += block.shape[1]
    return rows


def trace(gram: UpperBlocks) -> Tensor:
    total: Tensor = sum(block.diagonal(dim1=1, dim2=2).sum(1) for block in gram)  # type: ignore[assignment]
    return total


def entries_sum(gram: UpperBlocks) -> Tensor:
    """Sum of all entries, those off the diagonal blocks counted twice.

    By columns, and those in double precision where the device has it: entries cancel.
    """
    wide = widest_float(gram[0].device)
    total: Tensor = sum(  # type: ignore[assignment]
        2 * block.sum(1).sum(1, dtype=wide) - block[:, :, : block.shape[1]].sum(1).sum(1, dtype=wide)
        for block in gram
    )
    return total.to(gram[0].dtype)


def product_sum(left: UpperBlocks, right: UpperBlocks) -> Tensor:
    """Sum of the products of entries of two matrices; `right` is overwritten."""
    return entries_sum([b.mul_(a) for a, b in zip(left, right, strict=True)])
