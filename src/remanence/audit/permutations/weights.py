"""Weight matching: the permutation that brings two models' weights closest, by coordinate descent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remanence.audit.permutations.assignment import assign
from remanence.audit.permutations.symmetry import FIXED, Layout, Permutations, Symmetry, permuted_tensor

GAIN = 1e-12
"""Coordinate descent ends when a round gains less than this share of the reference's squared norm."""


@dataclass(frozen=True)
class Weights:
    """Two models' weights by name, in double precision, and the symmetry they share."""

    reference: Mapping[str, Tensor]
    other: Mapping[str, Tensor]
    symmetry: Symmetry

    def agreement(self, chosen: Permutations) -> float:
        """Inner product of the reference's weights with the other's, permuted."""
        layouts = self.symmetry.layouts
        return sum(
            float((ours * permuted_tensor(self.other[name], layouts[name], chosen, self.symmetry)).sum())
            for name, ours in self.reference.items()
        )


def match_weights(weights: Weights, *, orders: int, seed: int) -> Permutations:
    """Maximise the weights' inner product over one tree of units at a time, all others as they are.

    Every such step is solved exactly. Rounds go on until one gains less than 1e-12 of the reference's squared norm; a
    step that gains nothing is not taken, so the agreement never falls. The descent starts from the units' given places
    in `orders` random orders, and once from a pass through the model from its inputs, in which a unit is matched only
    by weights whose other end has been matched already. The best end is taken: a local optimum, as always with this
    method.
    """
    symmetry, draw = weights.symmetry, np.random.default_rng(seed)
    ends = [_descend(weights, _from_inputs(weights), symmetry.roots)]
    for _ in range(orders):
        order = draw.permutation(np.array(symmetry.roots, dtype=np.int64)).tolist()
        ends.append(_descend(weights, symmetry.identity(), order))
    return max(ends, key=lambda end: end[1])[0]


def _descend(weights: Weights, start: Permutations, order: Sequence[int]) -> tuple[Permutations, float]:
    chosen, value = start, weights.agreement(start)
    scale = sum(float(tensor.square().sum()) for tensor in weights.reference.values())
    while True:
        before = value
        for root in order:
            tried = chosen | assign(weights.symmetry, root, _gains(weights, root, chosen))
            reached = weights.agreement(tried)
            if reached > value:
                chosen, value = tried, reached
        if value - before <= GAIN * scale:
            return chosen, value


def _from_inputs(weights: Weights) -> Permutations:
    """Match from the inputs on, each tree by the weights that lead to it from what has been matched."""
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
    """How well each unit of the tree goes with each, by all weights it is an end of."""
    symmetry = weights.symmetry
    tree = set(symmetry.tree(root))
    gains: dict[int, NDArray[np.float64]] = {}
    for name, ours in weights.reference.items():
        layouts = symmetry.layouts[name]
        nodes = [{node for segment in axis for node, _ in segment} - {FIXED} for axis in layouts]
        if among is not None and not set().union(*nodes) <= set(among):
            continue
        for axis, found in enumerate(nodes):
            if found & tree:
                rest = [layout if i != axis else _unmoved(layout) for i, layout in enumerate(layouts)]
                theirs = permuted_tensor(weights.other[name], rest, chosen, symmetry)
                for node, table in unit_products(symmetry, layouts[axis], ours, theirs, axis, tree, chosen):
                    gains[node] = gains[node] + table if node in gains else table
    return gains


def unit_products(
    symmetry: Symmetry,
    layout: Layout,
    ours: Tensor,
    theirs: Tensor,
    axis: int,
    tree: Collection[int],
    chosen: Permutations,
) -> list[tuple[int, NDArray[np.float64]]]:
    """For every segment of an axis along which the tree runs: the innermost node, and [N, N] inner products."""
    found, start = [], 0
    ours, theirs = ours.movedim(axis, 0), theirs.movedim(axis, 0)
    for segment in layout:
        sizes = [size for _, size in segment]
        stop = start + int(np.prod(sizes, dtype=np.int64))
        inside = [i for i, (node, _) in enumerate(segment) if node in tree]
        if inside:
            rest = [i for i in range(len(sizes)) if i not in inside]
            rows = [tensor[start:stop].reshape(*sizes, -1) for tensor in (ours, theirs)]
            rows[1] = _placed(rows[1], segment, rest, chosen, symmetry)
            n = int(np.prod([sizes[i] for i in inside], dtype=np.int64))
            one, other = (each.permute(*inside, *rest, len(sizes)).reshape(n, -1) for each in rows)
            found.append((segment[inside[-1]][0], (one @ other.T).numpy()))
        start = stop
    return found


def _placed(
    rows: Tensor,
    segment: Sequence[tuple[int, int]],
    rest: Sequence[int],
    chosen: Permutations,
    symmetry: Symmetry,
) -> Tensor:
    """Units of other trees along the same segment, put where they now are."""
    for i in rest:
        node = segment[i][0]
        if node != FIXED and len(symmetry.path(node)) == 1:
            rows = rows.index_select(i, torch.from_numpy(chosen[node]))
    return rows


def _unmoved(layout: Layout) -> Layout:
    return tuple(tuple((FIXED, size) for _, size in segment) for segment in layout)
