"""The best permutation of a tree of units, given the gain of every pair of units of two models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from remanence.audit.permutations.symmetry import Permutations, Symmetry

Gains = Mapping[int, NDArray[np.float64]]
"""Node -> [N, N], the gain of moving old unit j to new position i; N counts units along the node's path."""


def assign(symmetry: Symmetry, root: int, gains: Gains) -> Permutations:
    """The permutation of a root and its descendants with the largest total gain.

    Exact: the units within unit j are assigned to those within position i for every pair (i, j), and the values are
    the gains of the outer assignment (heads are matched by the best match of their units).
    """
    search = _Search(symmetry, gains)
    search.value(root, 0, 0)
    chosen = {
        node: np.zeros([symmetry.nodes[ancestor].size for ancestor in symmetry.path(node)], np.int64)
        for node in symmetry.tree(root)
    }
    search.write(root, 0, 0, (), chosen)
    return chosen


class _Search:
    def __init__(self, symmetry: Symmetry, gains: Gains) -> None:
        self.symmetry, self.gains = symmetry, gains
        self.best: dict[tuple[int, int, int], NDArray[np.int64]] = {}

    def value(self, node: int, new: int, old: int) -> float:
        """The gain of the best assignment of the units within `old` to those within `new`, counted along the path."""
        size, fixed = self.symmetry.nodes[node].size, self.symmetry.nodes[node].fixed
        rows, columns = slice(new * size, (new + 1) * size), slice(old * size, (old + 1) * size)
        table = self.gains[node][rows, columns].copy() if node in self.gains else np.zeros((size, size))
        for child in self.symmetry.children[node]:
            pairs = ((i, i) for i in range(size)) if fixed else np.ndindex(size, size)
            for i, j in pairs:
                table[i, j] += self.value(child, new * size + i, old * size + j)
        positions = np.arange(size) if fixed else linear_sum_assignment(table, maximize=True)[1]
        self.best[node, new, old] = positions.astype(np.int64)
        return float(table[np.arange(size), positions].sum())

    def write(self, node: int, new: int, old: int, path: tuple[int, ...], chosen: Permutations) -> None:
        positions = self.best[node, new, old]
        chosen[node][path] = positions
        size = self.symmetry.nodes[node].size
        for child in self.symmetry.children[node]:
            for i, j in enumerate(positions.tolist()):
                self.write(child, new * size + i, old * size + j, (*path, i), chosen)
