"""The best permutation of a tree of units, given how well each unit of one model goes with each of the other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from remanence.audit.permutations.symmetry import Permutations, Symmetry

Gains = Mapping[int, NDArray[np.float64]]
"""Node -> [N, N], what it is worth to put old unit j in new place i; N counts units along the node's path."""


def assign(symmetry: Symmetry, root: int, gains: Gains) -> Permutations:
    """The permutation of a root and all within it that is worth most.

    Exact: what is within unit j is matched with what is within place i for every pair, and those values are then the
    gains of the outer assignment (heads are matched by how well their insides can be).
    """
    search = _Search(symmetry, gains)
    search.value(root, 0, 0)
    chosen = {
        node: np.zeros([symmetry.nodes[each].size for each in symmetry.path(node)], np.int64)
        for node in symmetry.tree(root)
    }
    search.write(root, 0, 0, (), chosen)
    return chosen


class _Search:
    def __init__(self, symmetry: Symmetry, gains: Gains) -> None:
        self.symmetry, self.gains = symmetry, gains
        self.best: dict[tuple[int, int, int], NDArray[np.int64]] = {}

    def value(self, node: int, new: int, old: int) -> float:
        """What the best assignment within unit `old` is worth in place `new` (both counted along the path)."""
        size, fixed = self.symmetry.nodes[node].size, self.symmetry.nodes[node].fixed
        rows, columns = slice(new * size, (new + 1) * size), slice(old * size, (old + 1) * size)
        table = self.gains[node][rows, columns].copy() if node in self.gains else np.zeros((size, size))
        for child in self.symmetry.children[node]:
            pairs = ((i, i) for i in range(size)) if fixed else np.ndindex(size, size)
            for i, j in pairs:
                table[i, j] += self.value(child, new * size + i, old * size + j)
        places = np.arange(size) if fixed else linear_sum_assignment(table, maximize=True)[1]
        self.best[node, new, old] = places.astype(np.int64)
        return float(table[np.arange(size), places].sum())

    def write(self, node: int, new: int, old: int, path: tuple[int, ...], chosen: Permutations) -> None:
        """Take the assignments along the chosen pairs."""
        places = self.best[node, new, old]
        chosen[node][path] = places
        size = self.symmetry.nodes[node].size
        for child in self.symmetry.children[node]:
            for i, j in enumerate(places.tolist()):
                self.write(child, new * size + i, old * size + j, (*path, i), chosen)
