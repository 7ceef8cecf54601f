"""Rules of operations that move entries: views, slices, concatenations, paddings, look-ups."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from remanence.audit.permutations.operation import Operation, TensorAxes
from remanence.audit.permutations.unit_axes import (
    ONE,
    Atom,
    Axis,
    cut,
    divided,
    fix,
    fixed_axis,
    free_axis,
    is_fixed,
    merged,
    pick,
    resolved,
    size_of,
    unite,
)


def unchanged(op: Operation) -> TensorAxes:
    """The output has the axes of the first input."""
    return op.axes()


def uniform(op: Operation) -> TensorAxes:
    """The same value everywhere: order does not matter."""
    return [free_axis(size) for size in op.shape]


def view(op: Operation) -> TensorAxes:
    """The same entries in the same order, divided differently."""
    old = [axis for axis in op.axes() if size_of(axis) > 1]
    new_sizes = [size for size in op.shape if size != 1]
    new: list[Axis] = []
    while old:
        group, sizes = [old.pop(0)], [new_sizes.pop(0)]
        while (old_size := math.prod(map(size_of, group))) != (new_size := math.prod(sizes)):
            if old_size < new_size:
                group.append(old.pop(0))
            else:
                sizes.append(new_sizes.pop(0))
        new += divided(merged(group) if len(group) > 1 else group[0], sizes)
    return _inserted(new, op.shape)


def permute(op: Operation) -> TensorAxes:
    """Axes in another order."""
    axes = op.axes()
    if op.name == "t":
        return axes[::-1]
    if op.name.startswith("transpose"):
        a, b = op["dim0"], op["dim1"]
        axes[a], axes[b] = axes[b], axes[a]
        return axes
    return [axes[dim] for dim in op["dims"]]


def squeeze(op: Operation) -> TensorAxes:
    """Axes of size one are dropped or inserted, as the output's shape says (also for `unsqueeze`)."""
    return _inserted([axis for axis in op.axes() if size_of(axis) > 1], op.shape)


def _inserted(axes: TensorAxes, shape: Sequence[int]) -> TensorAxes:
    rest = iter(axes)
    return [ONE if size == 1 else next(rest) for size in shape]


def expand(op: Operation) -> TensorAxes:
    """Axes of size one are repeated."""
    axes = op.axes()
    before: TensorAxes = [ONE] * (len(op.shape) - len(axes)) + axes
    return [
        axis if size_of(axis) == size else free_axis(size)
        for axis, size in zip(before, op.shape, strict=True)
    ]


def spatial(op: Operation) -> TensorAxes:
    """Pooling, resizing: the spatial axes are fixed, the others are unchanged."""
    axes = op.axes()
    dimensions = re.search(r"([123])d", op.name)
    depth = int(dimensions[1]) if dimensions else 2
    for axis in axes[-depth:]:
        fix(axis)
    return [*axes[:-depth], *(fixed_axis(size) for size in op.shape[-depth:])]


def pad(op: Operation) -> TensorAxes:
    """Constant padding: what is added is fixed."""
    axes = op.axes()
    sizes = list(op["pad"])
    for dim in range(1, len(sizes) // 2 + 1):
        low, high = sizes[2 * dim - 2], sizes[2 * dim - 1]
        if low < 0 or high < 0:
            fix(axes[-dim])
            axes[-dim] = fixed_axis(op.shape[-dim])
        elif low or high:
            edges = [fixed_axis(size) if size else () for size in (low, high)]
            axes[-dim] = (*edges[0], *axes[-dim], *edges[1])
    return axes


def concatenate(op: Operation) -> TensorAxes:
    """One after the other along one axis."""
    inputs = [op.record.of(tensor) for tensor in op["tensors"] if tensor.numel()]
    axes = inputs[0]
    dim = op["dim"] % len(axes)
    for other in inputs[1:]:
        axes = [axis if i == dim else unite(axis, other[i]) for i, axis in enumerate(axes)]
    axes[dim] = resolved(tuple(segment for own in inputs for segment in own[dim]))
    return axes


def stack(op: Operation) -> TensorAxes:
    """Side by side along a new axis."""
    inputs = [op.record.of(tensor) for tensor in op["tensors"]]
    axes = inputs[0]
    for other in inputs[1:]:
        axes = [unite(a, b) for a, b in zip(axes, other, strict=True)]
    dim = op["dim"] % (len(axes) + 1)
    return [*axes[:dim], fixed_axis(len(inputs)), *axes[dim:]]


def repeat(op: Operation) -> TensorAxes:
    """The same entries several times along an axis."""
    axes = op.axes()
    before: TensorAxes = [ONE] * (len(op.shape) - len(axes)) + axes
    return [
        free_axis(times) if size_of(axis) == 1 else resolved(axis * times)
        for axis, times in zip(before, op["repeats"], strict=True)
    ]


def select(op: Operation) -> TensorAxes:
    """One position of an axis; the axis disappears, and atoms within it are those at that position."""
    axes = op.axes()
    dim = op["dim"] % len(axes)
    return _picked(axes, dim, op["index"] % size_of(axes[dim]))


def unbind(op: Operation) -> list[TensorAxes]:
    """Every position of an axis separately."""
    axes = op.axes()
    dim = (op["dim"] or 0) % len(axes)
    return [_picked(axes, dim, i) for i in range(size_of(axes[dim]))]


def _picked(axes: TensorAxes, dim: int, index: int) -> TensorAxes:
    axis = axes[dim]
    rest = axes[:dim] + axes[dim + 1 :]
    if is_fixed(axis) and not _children(axis, rest):
        return rest
    fix(axis)
    inside = _children(axis, rest)
    picked = {id(atom): pick(atom, index) for atom in inside}
    return [tuple(tuple(picked.get(id(a.root), a) for a in s) for s in axis) for axis in rest]


def _children(axis: Axis, rest: TensorAxes) -> list[Atom]:
    """Atoms in `rest` that are nested in an atom of the axis, parents before children."""
    above = {id(atom.root) for segment in axis for atom in segment}
    children: list[Atom] = []
    grown = True
    while grown:
        grown = False
        for atom in (atom.root for other in rest for segment in other for atom in segment):
            known = id(atom) in {id(child) for child in children}
            if not known and not atom.fixed and any(id(p.root) in above for p in atom.parents):
                children.append(atom)
                above.add(id(atom))
                grown = True
    return children


def slice_(op: Operation) -> TensorAxes:
    """A part of an axis."""
    axes = op.axes()
    dim, size = op["dim"] % len(axes), op.shape[op["dim"]]
    whole = size_of(axes[dim])
    if size == whole:
        return axes
    if is_fixed(axes[dim]) or op["step"] != 1:
        fix(axes[dim])
        axes[dim] = fixed_axis(size)
        return axes
    start = op["start"] or 0
    start = start % whole if start < 0 else min(start, whole)
    sizes = [start, size, whole - start - size]
    axes[dim] = cut(axes[dim], [piece for piece in sizes if piece])[int(start > 0)]
    return axes


def split(op: Operation) -> list[TensorAxes]:
    """Consecutive parts of an axis."""
    axes = op.axes()
    dim = (op["dim"] or 0) % len(axes)
    pieces = cut(axes[dim], [tensor.shape[dim] for tensor in op.outputs])
    return [[*axes[:dim], piece, *axes[dim + 1 :]] for piece in pieces]


def gated(op: Operation) -> TensorAxes:
    """Two halves of an axis, one of which gates the other."""
    axes = op.axes()
    dim = op["dim"] % len(axes)
    half = size_of(axes[dim]) // 2
    axes[dim] = unite(*cut(axes[dim], [half, half]))
    return axes


def embedding(op: Operation) -> TensorAxes:
    """Rows of a table, selected by index: rows are fixed, columns are units."""
    weight = op.axes("weight")
    fix(weight[0])
    return [*op.axes("indices"), *weight[1:]]
