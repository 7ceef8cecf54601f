"""The axes of a tensor: which hidden units run along them, and in which order.

An *atom* is a row of units that are permuted together: the channels of a convolution, for example. An axis is a sum of
products of atoms. ``((h, w),)`` is one axis along which the units of `w` run within each unit of `h` (heads and
units within a head); ``((a,), (b,))`` is `a` followed by `b` (a concatenation). An axis of size one is ``((),)``.

Atoms start free and are only ever restricted: united, split into parts, or *fixed* (not permuted), which is always
correct but removes permutations. An atom that results from a split is nested in another, its *parent*: its units may
be permuted differently for each unit of the parent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias


class Atom:
    """A row of units; compare atoms by `root`."""

    __slots__ = ("_fixed", "at", "link", "parents", "parts", "size")

    def __init__(self, size: int, *, fixed: bool = False, parents: Sequence[Atom] = ()) -> None:
        self.size = size
        self.link: Atom | None = None
        self.parts: Axis | None = None
        self.parents: list[Atom] = list(parents)
        self.at: dict[int, Atom] = {}
        """By position along a fixed parent, for positions that were selected: the atom that this one stands for."""
        self._fixed = fixed

    @property
    def root(self) -> Atom:
        """The representative of all atoms that are united with this one."""
        atom = self
        while atom.link is not None:
            atom = atom.link
        return atom

    @property
    def fixed(self) -> bool:
        return self.root._fixed

    def fix(self) -> None:
        """Do not permute these units, nor any parts of them."""
        root = self.root
        root._fixed = True
        for segment in root.parts or ():
            for atom in segment:
                atom.fix()
        for atom in root.at.values():
            atom.fix()


Segment: TypeAlias = tuple[Atom, ...]
Axis: TypeAlias = tuple[Segment, ...]
ONE: Axis = ((),)


def free_axis(size: int) -> Axis:
    """An axis of units that can be permuted, as far as is known."""
    return ONE if size == 1 else ((Atom(size),),)


def fixed_axis(size: int) -> Axis:
    """An axis whose entries are not permuted."""
    return ONE if size == 1 else ((Atom(size, fixed=True),),)


def size_of(axis: Axis) -> int:
    return sum(math.prod(atom.size for atom in segment) for segment in axis)


def fix(axis: Axis) -> None:
    for segment in axis:
        for atom in segment:
            atom.fix()


def is_fixed(axis: Axis) -> bool:
    return all(atom.fixed for segment in resolved(axis) for atom in segment)


def resolved(axis: Axis) -> Axis:
    """The axis in terms of atoms that have no parts."""
    segments: list[Segment] = []
    for segment in axis:
        segments += _expanded(segment)
    if len(segments) > 1 and all(atom.fixed for segment in segments for atom in segment):
        return fixed_axis(size_of(tuple(segments)))
    return tuple(segments)


def _expanded(segment: Segment) -> list[Segment]:
    for place, atom in enumerate(segment):
        root = atom.root
        before, after = segment[:place], segment[place + 1 :]
        if root.parts is not None:
            if len(root.parts) == 1:
                return _expanded((*before, *root.parts[0], *after))
            if not before:
                return [piece for part in root.parts for piece in _expanded((*part, *after))]
            return _fixed_segment(segment)  # a product with a sum on the right cannot be expressed as an axis
        if root.at:
            return _picked(segment, place)
    return [tuple(atom.root for atom in segment)]


def _picked(segment: Segment, place: int) -> list[Segment]:
    """A fixed parent followed by atoms of which single positions were selected: one segment per position."""
    if place != 1 or not segment[0].fixed:
        return [tuple(atom.root for atom in segment)]
    parent = segment[0].root
    segments = []
    for i in range(parent.size):
        segments += _expanded(tuple(pick(atom, i) if atom.root.at else atom for atom in segment[1:]))
    return segments


def _fixed_segment(segment: Segment) -> list[Segment]:
    for atom in segment:
        atom.fix()
    return list(fixed_axis(math.prod(atom.size for atom in segment)))


def pick(atom: Atom, index: int) -> Atom:
    """The atom that an atom stands for at one position of its fixed parent."""
    root = atom.root
    if root.fixed:
        return Atom(root.size, fixed=True)
    if index not in root.at:
        parents = [above.root.at[index] for above in root.parents if index in above.root.at]
        root.at[index] = Atom(root.size, parents=parents)
    return root.at[index]


def unite(a: Axis, b: Axis) -> Axis:
    """Declare the units along two axes of equal length to be the same; return the common axis."""
    while True:
        a, b = resolved(a), resolved(b)
        if not _unite_step(a, b):
            return resolved(a)


def _unite_step(a: Axis, b: Axis) -> bool:
    """Make two axes more alike; return whether an atom was split."""
    for s, t in zip(a, b, strict=False):
        if s == t:
            continue
        one, other = (math.prod(atom.size for atom in segment) for segment in (s, t))
        if one == other:
            if _unite_products(s, t):
                return True
        elif not _cut(s, other) if one > other else not _cut(t, one):
            break
        else:
            return True
    else:
        return False
    fix(a)
    fix(b)
    return False


def _cut(segment: Segment, size: int) -> bool:
    """Split the outermost atom so that the segment begins with one of this size; return whether it is possible."""
    if not segment:
        return False
    outer, inner = segment[0].root, math.prod(atom.size for atom in segment[1:])
    if size % inner or outer.at:
        return False
    first = size // inner
    sizes = (first, outer.size - first)
    outer.parts = tuple((Atom(n, fixed=outer.fixed, parents=outer.parents),) for n in sizes)
    return True


def _unite_products(s: Segment, t: Segment) -> bool:
    """Unite two products of atoms, outermost first; return whether an atom was split."""
    for p, q in zip(s, t, strict=False):
        if p.size == q.size:
            _equate(p, q)
        elif p.size % q.size == 0 and not p.root.at:
            nest(p, q.size)
            return True
        elif q.size % p.size == 0 and not q.root.at:
            nest(q, p.size)
            return True
        else:
            for atom in (*s, *t):
                atom.fix()
            return False
    return False


def _equate(p: Atom, q: Atom) -> None:
    p, q = p.root, q.root
    if p is q:
        return
    if p.at or q.at or p.fixed or q.fixed:
        p.fix()
        q.fix()
    q.link = p
    p.parents += q.parents


def nest(atom: Atom, outer: int) -> tuple[Atom, Atom]:
    """Split an atom into `outer` blocks and the units within each."""
    root = atom.root
    first = Atom(outer, fixed=root.fixed, parents=root.parents)
    within = Atom(root.size // outer, fixed=root.fixed, parents=[first])
    root.parts = ((first, within),)
    return first, within


def merged(axes: Sequence[Axis]) -> Axis:
    """One axis in place of several; the last runs fastest."""
    first, *rest = (resolved(axis) for axis in axes)
    if all(len(axis) == 1 for axis in rest):
        tail = tuple(atom for axis in rest for atom in axis[0])
        return tuple((*segment, *tail) for segment in first)
    for axis in axes:
        fix(axis)
    return fixed_axis(math.prod(size_of(axis) for axis in axes))


def divided(axis: Axis, sizes: Sequence[int]) -> list[Axis]:
    """Several axes, of these sizes, in place of one; the last runs fastest."""
    axis = resolved(axis)
    lengths = [size for size in sizes if size != 1]
    if len(lengths) == 1:
        axes: list[Axis] | None = [axis]
    else:
        axes = _divided(list(axis[0]), lengths) if len(axis) == 1 else None
    if axes is None:
        fix(axis)
        axes = [fixed_axis(size) for size in lengths]
    parts = iter(axes)
    return [ONE if size == 1 else next(parts) for size in sizes]


def _divided(atoms: list[Atom], sizes: Sequence[int]) -> list[Axis] | None:
    axes: list[Axis] = []
    for size in sizes:
        taken: list[Atom] = []
        while size > 1:
            atom = atoms.pop(0).root
            if size % atom.size == 0:
                taken.append(atom)
                size //= atom.size
            elif atom.size % size == 0 and not atom.at:
                first, within = nest(atom, size)
                taken.append(first)
                atoms.insert(0, within)
                size = 1
            else:
                return None
        axes.append((tuple(taken),))
    return axes


def cut(axis: Axis, sizes: Sequence[int]) -> list[Axis]:
    """The axis in consecutive pieces of these sizes."""
    pieces = [free_axis(size) for size in sizes]
    unite(axis, tuple(segment for piece in pieces for segment in piece))
    return [resolved(piece) for piece in pieces]
