"""The permutations that leave a model's function alone, and how to apply one.

Units form a forest. A *node* is a row of units; one that is within another (channels of a GroupNorm's group, units of
an attention head) has it as its parent, and a permutation of its own for each of the parent's units. `layouts` says
where the nodes run in every weight.
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

from remanence.audit.permutations.axes import Atom, Axis, resolved
from remanence.audit.permutations.labels import Label, Labels

FIXED = -1
Factor: TypeAlias = tuple[int, int]
"""(node, size); node is FIXED for entries that stay."""
Layout: TypeAlias = tuple[tuple[Factor, ...], ...]
"""An axis: consecutive segments, each a product of factors, the last running fastest."""
Permutations: TypeAlias = dict[int, NDArray[np.int64]]
"""Node -> [*sizes of its ancestors, size]: which old unit comes to each new place."""


@dataclass(frozen=True)
class Node:
    """Units that change places with each other."""

    size: int
    parent: int | None
    fixed: bool
    """Its own units stay; those within it may move."""


@dataclass(frozen=True)
class Site:
    """The first output of one operation of the pass, and what runs along its axes."""

    count: int
    operation: str
    label: tuple[Layout, ...]


@dataclass(frozen=True)
class Symmetry:
    """All permutations of hidden units that a model has.

    Args:
        nodes: the rows of units.
        layouts: for each weight or buffer that takes part, what runs along its axes.
        sites: where units can be watched as activations.
    """

    nodes: tuple[Node, ...]
    layouts: Mapping[str, tuple[Layout, ...]]
    sites: tuple[Site, ...]

    def path(self, node: int) -> tuple[int, ...]:
        """The node and what it is within, outermost first."""
        parent = self.nodes[node].parent
        return (node,) if parent is None else (*self.path(parent), node)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Nodes that are within no other, in the order in which the pass met them."""
        return tuple(i for i, node in enumerate(self.nodes) if node.parent is None)

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """The nodes directly within each."""
        return {
            i: tuple(j for j, other in enumerate(self.nodes) if other.parent == i)
            for i in range(len(self.nodes))
        }

    def tree(self, root: int) -> tuple[int, ...]:
        """A node and all within it."""
        return (root, *(each for child in self.children[root] for each in self.tree(child)))

    def identity(self) -> Permutations:
        """Everything stays."""
        return {i: self._unmoved(i) for i in range(len(self.nodes))}

    def random(self, seed: int) -> Permutations:
        """Everything that may move moves."""
        draw = np.random.default_rng(seed)
        chosen = self.identity()
        for i, node in enumerate(self.nodes):
            if not node.fixed:
                chosen[i] = draw.permuted(chosen[i], axis=-1)
        return chosen

    def _unmoved(self, node: int) -> NDArray[np.int64]:
        sizes = [self.nodes[each].size for each in self.path(node)]
        return np.broadcast_to(np.arange(sizes[-1]), sizes).copy()


def old_places(layout: Layout, chosen: Permutations, symmetry: Symmetry) -> NDArray[np.int64]:
    """For every new place along an axis, the old one."""
    found, start = [], 0
    for segment in layout:
        sizes = [size for _, size in segment]
        grid = np.indices(sizes, dtype=np.int64) if sizes else np.zeros((0,), np.int64)
        new = {node: grid[i] for i, (node, _) in enumerate(segment) if node != FIXED}
        old = [
            grid[i] if node == FIXED else chosen[node][tuple(new[each] for each in symmetry.path(node))]
            for i, (node, _) in enumerate(segment)
        ]
        flat = np.ravel_multi_index(tuple(old), sizes).ravel() if sizes else np.zeros(1, np.int64)
        found.append(flat.astype(np.int64) + start)
        start += math.prod(sizes)
    return np.concatenate(found)


def permuted_tensor(
    tensor: Tensor, layouts: Sequence[Layout], chosen: Permutations, symmetry: Symmetry
) -> Tensor:
    """A weight with its units in new places."""
    for axis, layout in enumerate(layouts):
        tensor = permuted_axis(tensor, axis, layout, chosen, symmetry)
    return tensor


def permuted_axis(
    tensor: Tensor, axis: int, layout: Layout, chosen: Permutations, symmetry: Symmetry
) -> Tensor:
    """A weight with the units along one axis in new places."""
    if all(node == FIXED for segment in layout for node, _ in segment):
        return tensor
    places = torch.from_numpy(old_places(layout, chosen, symmetry)).to(tensor.device)
    return tensor.index_select(axis, places)


def permuted(model: nn.Module, symmetry: Symmetry, chosen: Permutations) -> nn.Module:
    """A copy of the model with its hidden units in new places: the same function, other weights."""
    copied = copy.deepcopy(model)
    tensors = dict((*copied.named_parameters(), *copied.named_buffers()))
    with torch.no_grad():
        for name, layouts in symmetry.layouts.items():
            tensors[name].copy_(permuted_tensor(tensors[name], layouts, chosen, symmetry))
    return copied


def settle(named: Mapping[str, Label], labels: Labels, sites: Iterable[tuple[int, str, Label]]) -> Symmetry:
    """From what the pass tied together to the permutations that are left."""
    _free_strays(list(named.values()), labels.everything())
    numbers: dict[int, int] = {}
    atoms: list[Atom] = []
    final = {name: [resolved(axis) for axis in label] for name, label in named.items()}
    for axis in (axis for label in final.values() for axis in label):
        for segment in axis:
            for atom in segment:
                if not atom.fixed:
                    _number(atom, numbers, atoms)
    nodes = tuple(_node(atom, numbers) for atom in atoms)
    layouts = {name: tuple(_layout(axis, numbers) for axis in label) for name, label in final.items()}
    moving = {
        name: axes
        for name, axes in layouts.items()
        if any(node != FIXED for axis in axes for segment in axis for node, _ in segment)
    }
    watched = tuple(
        Site(count, operation, tuple(_layout(resolved(axis), numbers) for axis in label))
        for count, operation, label in sites
    )
    return Symmetry(nodes, moving, watched)


def _number(atom: Atom, numbers: dict[int, int], atoms: list[Atom]) -> None:
    """Number an atom, after what it is within."""
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


def _layout(axis: Axis, numbers: Mapping[int, int]) -> Layout:
    return tuple(tuple((numbers.get(id(atom.root), FIXED), atom.size) for atom in s) for s in axis)


def _parent(atom: Atom) -> Atom | None:
    """What an atom is within, where that is one thing and matters."""
    if atom.fixed:
        return None
    found = {id(each): each for each in map(_innermost, atom.root.parents) if each is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def _innermost(atom: Atom) -> Atom | None:
    [*segments] = resolved(((atom,),))
    return segments[0][-1].root if len(segments) == 1 and segments[0] else None


def _free_strays(weights: list[Label], everything: list[Label]) -> None:
    """Cut loose what is within something that is not there to say which.

    An atom that is within another may be permuted differently for each of the other's units, so every tensor that
    carries it must carry the other too (a weight: along the same axis, further out). Where one does not, the atom has
    one permutation for all. Cutting one loose may bare the next.
    """
    while True:
        loose = [atom for label in everything for atom in _strays(label, along_one_axis=False)]
        loose += [atom for label in weights for atom in _strays(label, along_one_axis=True)]
        for atom in loose:
            atom.parents.clear()
        if not loose:
            return


def _strays(label: Label, *, along_one_axis: bool) -> Iterable[Atom]:
    axes = [resolved(axis) for axis in label]
    present = {id(atom.root) for axis in axes for segment in axis for atom in segment}
    for segment in (segment for axis in axes for segment in axis):
        outer: set[int] = set()
        for atom in (atom.root for atom in segment):
            if not atom.fixed and atom.parents:
                parent = _parent(atom)
                if parent is None or id(parent) not in (outer if along_one_axis else present):
                    yield atom
            outer.add(id(atom))
