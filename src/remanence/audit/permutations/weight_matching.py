"""Weight matching: the permutation that minimizes the distance of two models' weights, by coordinate descent."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from remanence.audit.permutations.assignment import assign
from remanence.audit.permutations.symmetry import (
    FIXED,
    AxisLayout,
    Permutations,
    Symmetry,
    permuted_axis,
    permuted_tensor,
)

GAIN = 1e-12
"""Coordinate descent ends when a round gains less than this share of the squared norm of the reference."""


@dataclass(frozen=True)
class Weights:
    """Two models' weights by name, in double precision, and the symmetry they share."""

    reference: Mapping[str, Tensor]
    other: Mapping[str, Tensor]
    symmetry: Symmetry

    def agreement(self, chosen: Permutations, names: Collection[str] | None = None) -> float:
        """Inner product of the reference's weights with the other's, permuted; of all weights or the named ones."""
        layouts = self.symmetry.layouts
        return sum(
            float(
                self.reference[name].flatten()
                @ permuted_tensor(self.other[name], layouts[name], chosen, self.symmetry).flatten()
            )
            for name in (self.reference if names is None else names)
        )

    def moved_by(self, root: int) -> list[str]:
        """The weights that permuting this tree of units moves."""
        tree = set(self.symmetry.tree(root))
        return [name for name in self.reference if tree & _nodes(self.symmetry.layouts[name])]


def match_weights(weights: Weights, *, orders: int, seed: int) -> Permutations:
    """Maximize the inner product of the weights over one tree of units at a time, the others unchanged.

    Every such step is solved exactly. Rounds continue until one gains less than 1e-12 of the squared norm of the
    reference; a step without gain is not taken, so the agreement never decreases. The descent starts from the identity
    in `orders` random orders, and once from a pass through the model from its inputs, in which a unit is matched only
    by weights whose other end has been matched already. The best result is returned: a local optimum.
    """
    symmetry, rng = weights.symmetry, np.random.default_rng(seed)
    ends = [_descend(weights, _from_inputs(weights), symmetry.roots)]
    for _ in range(orders):
        order = rng.permutation(np.array(symmetry.roots, dtype=np.int64)).tolist()
        ends.append(_descend(weights, symmetry.identity(), order))
    return max(ends, key=lambda end: end[1])[0]


def _descend(weights: Weights, start: Permutations, order: Sequence[int]) -> tuple[Permutations, float]:
    chosen = start
    scale = sum(float(tensor.square().sum()) for tensor in weights.reference.values())
    moved = {root: weights.moved_by(root) for root in order}
    while True:
        gained = 0.0
        for root in order:
            candidate = chosen | assign(weights.symmetry, root, _gains(weights, root, chosen))
            gain = weights.agreement(candidate, moved[root]) - weights.agreement(chosen, moved[root])
            if gain > 0:
                chosen, gained = candidate, gained + gain
        if gained <= GAIN * scale:
            return chosen, weights.agreement(chosen)


def _nodes(layouts: Sequence[AxisLayout]) -> set[int]:
    return {node for axis in layouts for segment in axis for node, _ in segment} - {FIXED}


def _from_inputs(weights: Weights) -> Permutations:
    """Match from the inputs on, each tree by the weights that connect it with trees that have been matched."""
    symmetry = weights.symmetry
    chosen, known = symmetry.identity(), set[int]()
    for root in symmetry.roots:
        tree = set(symmetry.tree(root))
        known |= tree
        chosen |= assign(symmetry, root, _gains(weights, root, chosen, among=known))
    return chosen


def _gains(
    weights: Weights, root: int, chosen: Permutations, among: Collection[int] | None = None
) -> dict[int, NDArray[np.float64]]:
    """The gain of every pair of units of the tree, over all weights that they belong to."""
    symmetry = weights.symmetry
    tree = set(symmetry.tree(root))
    identity = symmetry.identity()
    others = {node: identity[node] if node in tree else positions for node, positions in chosen.items()}
    gains: dict[int, NDArray[np.float64]] = {}
    for name in weights.moved_by(root):
        reference, layouts = weights.reference[name], symmetry.layouts[name]
        nodes = [{node for segment in axis for node, _ in segment} - {FIXED} for axis in layouts]
        if among is not None and not set().union(*nodes) <= set(among):
            continue
        for axis, along_axis in enumerate(nodes):
            if along_axis & tree:
                other = weights.other[name]
                for i, layout in enumerate(layouts):
                    other = permuted_axis(other, i, layout, others if i == axis else chosen, symmetry)
                for node, table in _products(layouts[axis], reference, other, axis, tree):
                    gains[node] = gains[node] + table if node in gains else table
    return gains


def _products(
    layout: AxisLayout, reference: Tensor, other: Tensor, axis: int, tree: Collection[int]
) -> list[tuple[int, NDArray[np.float64]]]:
    """For every segment of an axis along which the tree runs: the innermost node, and [N, N] inner products."""
    products, start = [], 0
    tensors = [tensor.movedim(axis, 0) for tensor in (reference, other)]
    for segment in layout:
        sizes = [size for _, size in segment]
        stop = start + math.prod(sizes)
        inside = [i for i, (node, _) in enumerate(segment) if node in tree]
        if inside:
            rest = [i for i in range(len(sizes)) if i not in inside]
            n = math.prod(sizes[i] for i in inside)
            left, right = (
                tensor[start:stop].reshape(*sizes, -1).permute(*inside, *rest, len(sizes)).reshape(n, -1)
                for tensor in tensors
            )
            products.append((segment[inside[-1]][0], (left @ right.T).numpy()))
        start = stop
    return products
