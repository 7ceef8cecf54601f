"""What is known of a tensor's axes: which hidden units run along them, and in which order.

An *atom* is a row of units that are permuted together: the channels of a convolution, say. An axis is a sum of
products of atoms. ``((h, w),)`` is one axis along which the units of `w` run within each unit of `h` (heads and
what is within a head); ``((a,), (b,))`` is `a` followed by `b` (a concatenation). An axis of size one is ``((),)``.

Atoms start free and are only ever narrowed down: made equal, split into parts, or *held* (left as they are), which
is always right and never helpful. An atom that comes out of a split is within another, its *parent*: its units may
be permuted differently for each unit of the parent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias


class Atom:
    """Some units; compare atoms by `root`."""

    __slots__ = ("_fixed", "at", "link", "parents", "parts", "size")

    def __init__(self, size: int, *, fixed: bool = False, parents: Sequence[Atom] = ()) -> None:
        self.size = size
        self.link: Atom | None = None
        self.parts: Axis | None = None
        self.parents: list[Atom] = list(parents)
        self.at: dict[int, Atom] = {}
        """By position along a held parent, once somebody has picked one: the atoms this one stands for there."""
        self._fixed = fixed

    @property
    def root(self) -> Atom:
        """The atom that speaks for all that are equal to this one."""
        atom = self
        while atom.link is not None:
            atom = atom.link
        return atom

    @property
    def fixed(self) -> bool:
        """Whether these units stay where they are."""
        return self.root._fixed

    def hold(self) -> None:
        """Leave these units, and all parts of them, where they are."""
        root = self.root
        root._fixed = True
        for segment in root.parts or ():
            for atom in segment:
                atom.hold()
        for atom in root.at.values():
            atom.hold()


Segment: TypeAlias = tuple[Atom, ...]
Axis: TypeAlias = tuple[Segment, ...]
ONE: Axis = ((),)


def free(size: int) -> Axis:
    """An axis of which nothing is known yet."""
    return ONE if size == 1 else ((Atom(size),),)


def still(size: int) -> Axis:
    """An axis whose entries stay where they are."""
    return ONE if size == 1 else ((Atom(size, fixed=True),),)


def size_of(axis: Axis) -> int:
    """How many entries run along it."""
    return sum(math.prod(atom.size for atom in segment) for segment in axis)


def hold(axis: Axis) -> None:
    """Leave all units of an axis where they are."""
    for segment in axis:
        for atom in segment:
            atom.hold()


def is_still(axis: Axis) -> bool:
    """Whether nothing along it may move."""
    return all(atom.fixed for segment in resolved(axis) for atom in segment)


def resolved(axis: Axis) -> Axis:
    """The axis in terms of atoms that have no parts."""
    segments: list[Segment] = []
    for segment in axis:
        segments += _spread(segment)
    if len(segments) > 1 and all(atom.fixed for segment in segments for atom in segment):
        return still(size_of(tuple(segments)))
    return tuple(segments)


def _spread(segment: Segment) -> list[Segment]:
    for place, atom in enumerate(segment):
        root = atom.root
        before, after = segment[:place], segment[place + 1 :]
        if root.parts is not None:
            if len(root.parts) == 1:
                return _spread((*before, *root.parts[0], *after))
            if not before:
                return [each for part in root.parts for each in _spread((*part, *after))]
            return _held(segment)  # something times a sum: no axis of ours
        if root.at:
            return _picked(segment, place)
    return [tuple(atom.root for atom in segment)]


def _picked(segment: Segment, place: int) -> list[Segment]:
    """A held parent followed by atoms of which single positions were picked: one segment a position."""
    if place != 1 or not segment[0].fixed:
        return [tuple(atom.root for atom in segment)]
    parent = segment[0].root
    spread = []
    for i in range(parent.size):
        spread += _spread(tuple(pick(atom, i) if atom.root.at else atom for atom in segment[1:]))
    return spread


def _held(segment: Segment) -> list[Segment]:
    for atom in segment:
        atom.hold()
    return list(still(math.prod(atom.size for atom in segment)))


def pick(atom: Atom, index: int) -> Atom:
    """What an atom stands for at one position of its held parent."""
    root = atom.root
    if root.fixed:
        return Atom(root.size, fixed=True)
    if index not in root.at:
        parents = [above.root.at[index] for above in root.parents if index in above.root.at]
        root.at[index] = Atom(root.size, parents=parents)
    return root.at[index]


def unite(a: Axis, b: Axis) -> Axis:
    """The units along these two axes, equally long, are the same; the common axis."""
    while True:
        a, b = resolved(a), resolved(b)
        if not _step(a, b):
            return resolved(a)


def _step(a: Axis, b: Axis) -> bool:
    """Bring two axes one step closer to each other; whether anything had to be split for it."""
    for s, t in zip(a, b, strict=False):
        if s == t:
            continue
        one, other = (math.prod(atom.size for atom in each) for each in (s, t))
        if one == other:
            if _unite_products(s, t):
                return True
        elif not _cut(s, other) if one > other else not _cut(t, one):
            break
        else:
            return True
    else:
        return False
    hold(a)
    hold(b)
    return False


def _cut(segment: Segment, size: int) -> bool:
    """Split the outermost atom so that the segment begins with one of this size; whether that can be."""
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
    """Make two products of atoms the same, outermost first; whether an atom was split."""
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
                atom.hold()
            return False
    return False


def _equate(p: Atom, q: Atom) -> None:
    p, q = p.root, q.root
    if p is q:
        return
    if p.at or q.at or p.fixed or q.fixed:
        p.hold()
        q.hold()
    q.link = p
    p.parents += q.parents


def nest(atom: Atom, outer: int) -> tuple[Atom, Atom]:
    """Split an atom into `outer` blocks and what is within each."""
    root = atom.root
    first = Atom(outer, fixed=root.fixed, parents=root.parents)
    within = Atom(root.size // outer, fixed=root.fixed, parents=[first])
    root.parts = ((first, within),)
    return first, within


def merged(axes: Sequence[Axis]) -> Axis:
    """One axis that runs through all of these, the last fastest."""
    first, *rest = (resolved(axis) for axis in axes)
    if all(len(axis) == 1 for axis in rest):
        tail = tuple(atom for axis in rest for atom in axis[0])
        return tuple((*segment, *tail) for segment in first)
    for axis in axes:
        hold(axis)
    return still(math.prod(size_of(axis) for axis in axes))


def divided(axis: Axis, sizes: Sequence[int]) -> list[Axis]:
    """Several axes, of these sizes, in place of one; the last runs fastest."""
    axis = resolved(axis)
    wanted = [size for size in sizes if size != 1]
    if len(wanted) == 1:
        found: list[Axis] | None = [axis]
    else:
        found = _divided(list(axis[0]), wanted) if len(axis) == 1 else None
    if found is None:
        hold(axis)
        found = [still(size) for size in wanted]
    parts = iter(found)
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
    pieces = [free(size) for size in sizes]
    unite(axis, tuple(segment for piece in pieces for segment in piece))
    return [resolved(piece) for piece in pieces]
