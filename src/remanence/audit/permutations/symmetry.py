"""The permutations that do not change a model's function, and how to apply one.

Units form a forest. A *node* is a row of units; one that is nested in another (channels in a group of GroupNorm, units
of an attention head) has it as its parent, and its own permutation for each of the parent's units. `layouts` says
along which axes of every weight the nodes run.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.audit.permutations.operation import AxesRecord, TensorAxes
from remanence.audit.permutations.unit_axes import Atom, Axis, resolved

FIXED = -1
Factor: TypeAlias = tuple[int, int]
"""(node, size); node is FIXED for entries that are not permuted."""
AxisLayout: TypeAlias = tuple[tuple[Factor, ...], ...]
"""An axis: consecutive segments, each a product of factors, the last running fastest."""
Permutations: TypeAlias = dict[int, NDArray[np.int64]]
"""Node -> [*sizes of its ancestors, size]: the old unit at each new position."""


@dataclass(frozen=True)
class Node:
    """Units that can be permuted."""

    size: int
    parent: int | None
    fixed: bool
    """Its own units are not permuted; those nested in it can be."""


@dataclass(frozen=True)
class ActivationSite:
    """The first output of one operation of the pass, and the units along its axes."""

    count: int
    operation: str
    layouts: tuple[AxisLayout, ...]


@dataclass(frozen=True)
class Symmetry:
    """All permutations of hidden units that a model has.

    Args:
        nodes: the rows of units.
        layouts: for each weight or buffer with units that can be permuted, the units along its axes.
        sites: where units can be observed as activations.
    """

    nodes: tuple[Node, ...]
    layouts: Mapping[str, tuple[AxisLayout, ...]]
    sites: tuple[ActivationSite, ...]

    def path(self, node: int) -> tuple[int, ...]:
        """The node and its ancestors, outermost first."""
        parent = self.nodes[node].parent
        return (node,) if parent is None else (*self.path(parent), node)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Nodes without a parent, in the order of the forward pass."""
        return tuple(i for i, node in enumerate(self.nodes) if node.parent is None)

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        return {
            i: tuple(j for j, other in enumerate(self.nodes) if other.parent == i)
            for i in range(len(self.nodes))
        }

    def tree(self, root: int) -> tuple[int, ...]:
        """A node and all its descendants."""
        return (root, *(node for child in self.children[root] for node in self.tree(child)))

    def identity(self) -> Permutations:
        return {i: self._identity(i) for i in range(len(self.nodes))}

    def random(self, seed: int) -> Permutations:
        rng = np.random.default_rng(seed)
        chosen = self.identity()
        for i, node in enumerate(self.nodes):
            if not node.fixed:
                chosen[i] = rng.permuted(chosen[i], axis=-1)
        return chosen

    def _identity(self, node: int) -> NDArray[np.int64]:
        sizes = [self.nodes[ancestor].size for ancestor in self.path(node)]
        return np.broadcast_to(np.arange(sizes[-1]), sizes).copy()


def old_positions(layout: AxisLayout, chosen: Permutations, symmetry: Symmetry) -> NDArray[np.int64]:
    """For every new position along an axis, the old one."""
    positions, start = [], 0
    for segment in layout:
        sizes = [size for _, size in segment]
        grid = np.indices(sizes, dtype=np.int64) if sizes else np.zeros((0,), np.int64)
        new = {node: grid[i] for i, (node, _) in enumerate(segment) if node != FIXED}
        old = [
            grid[i]
            if node == FIXED
            else chosen[node][tuple(new[ancestor] for ancestor in symmetry.path(node))]
            for i, (node, _) in enumerate(segment)
        ]
        flat = np.ravel_multi_index(tuple(old), sizes).ravel() if sizes else np.zeros(1, np.int64)
        positions.append(flat.astype(np.int64) + start)
        start += math.prod(sizes)
    return np.concatenate(positions)


def permuted_tensor(
    tensor: Tensor, layouts: Sequence[AxisLayout], chosen: Permutations, symmetry: Symmetry
) -> Tensor:
    for axis, layout in enumerate(layouts):
        tensor = permuted_axis(tensor, axis, layout, chosen, symmetry)
    return tensor


def permuted_axis(
    tensor: Tensor, axis: int, layout: AxisLayout, chosen: Permutations, symmetry: Symmetry
) -> Tensor:
    if all(node == FIXED for segment in layout for node, _ in segment):
        return tensor
    positions = torch.from_numpy(old_positions(layout, chosen, symmetry)).to(tensor.device)
    return tensor.index_select(axis, positions)


def permuted(model: nn.Module, symmetry: Symmetry, chosen: Permutations) -> nn.Module:
    """A copy of the model with permuted hidden units: the same function, other weights."""
    copied = copy.deepcopy(model)
    tensors = dict((*copied.named_parameters(), *copied.named_buffers()))
    with torch.no_grad():
        for name, layouts in symmetry.layouts.items():
            tensors[name].copy_(permuted_tensor(tensors[name], layouts, chosen, symmetry))
    return copied


def symmetry_of(
    named: Mapping[str, TensorAxes], record: AxesRecord, sites: Iterable[tuple[int, str, TensorAxes]]
) -> Symmetry:
    """The permutations that remain after a traced pass.

    Args:
        named: the axes of every weight and buffer.
        record: the axes of every tensor of the pass.
        sites: count, name and axes of the first output of every operation.
    """
    _drop_lost_parents(list(named.values()), record.everything())
    numbers: dict[int, int] = {}
    atoms: list[Atom] = []
    final = {name: [resolved(axis) for axis in axes] for name, axes in named.items()}
    for axis in (axis for axes in final.values() for axis in axes):
        for segment in axis:
            for atom in segment:
                if not atom.fixed:
                    _number(atom, numbers, atoms)
    nodes = tuple(_node(atom, numbers) for atom in atoms)
    layouts = {name: tuple(_layout(axis, numbers) for axis in axes) for name, axes in final.items()}
    moving = {
        name: axes
        for name, axes in layouts.items()
        if any(node != FIXED for axis in axes for segment in axis for node, _ in segment)
    }
    observable = tuple(
        ActivationSite(count, operation, tuple(_layout(resolved(axis), numbers) for axis in axes))
        for count, operation, axes in sites
    )
    return Symmetry(nodes, moving, observable)


def _number(atom: Atom, numbers: dict[int, int], atoms: list[Atom]) -> None:
    """Number an atom, after its parent."""
    atom = atom.root
    if id(atom) in numbers:
        return
    parent = _parent(atom)
    if parent is not None:
        _number(parent, numbers, atoms)
    numbers[id(atom)] = len(atoms)
    atoms.append(atom)


def _node(atom: Atom, numbers: Mapping[int, int]) -> Node:
    parent = _parent(atom)
    return Node(atom.size, None if parent is None else numbers[id(parent)], atom.fixed)


def _layout(axis: Axis, numbers: Mapping[int, int]) -> AxisLayout:
    return tuple(tuple((numbers.get(id(atom.root), FIXED), atom.size) for atom in s) for s in axis)


def _parent(atom: Atom) -> Atom | None:
    """The parent of an atom that can be permuted, if there is exactly one."""
    if atom.fixed:
        return None
    parents = {id(parent): parent for parent in map(_innermost, atom.root.parents) if parent is not None}
    return next(iter(parents.values())) if len(parents) == 1 else None


def _innermost(atom: Atom) -> Atom | None:
    [*segments] = resolved(((atom,),))
    return segments[0][-1].root if len(segments) == 1 and segments[0] else None


def _drop_lost_parents(weights: list[TensorAxes], everything: list[TensorAxes]) -> None:
    """Make atoms roots if a tensor carries them without their parent.

    A nested atom may be permuted differently for each unit of its parent, so every tensor that carries it must carry
    the parent too (a weight: along the same axis, further out). Otherwise the atom has one permutation for all units
    of the parent. Dropping one parent may separate further atoms from theirs.
    """
    while True:
        loose = [atom for axes in everything for atom in _without_parent(axes, along_one_axis=False)]
        loose += [atom for axes in weights for atom in _without_parent(axes, along_one_axis=True)]
        for atom in loose:
            atom.parents.clear()
        if not loose:
            return


def _without_parent(tensor_axes: TensorAxes, *, along_one_axis: bool) -> Iterable[Atom]:
    axes = [resolved(axis) for axis in tensor_axes]
    present = {id(atom.root) for axis in axes for segment in axis for atom in segment}
    for segment in (segment for axis in axes for segment in axis):
        outer: set[int] = set()
        for atom in (atom.root for atom in segment):
            if not atom.fixed and atom.parents:
                parent = _parent(atom)
                if parent is None or id(parent) not in (outer if along_one_axis else present):
                    yield atom
            outer.add(id(atom))
