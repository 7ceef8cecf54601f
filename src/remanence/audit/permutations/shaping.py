"""Operations that move entries about: views, pieces, concatenations, paddings, look-ups."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from remanence.audit.permutations.axes import (
    ONE,
    Atom,
    Axis,
    cut,
    divided,
    free,
    hold,
    is_still,
    merged,
    pick,
    resolved,
    size_of,
    still,
    unite,
)
from remanence.audit.permutations.labels import Label, Step


def unchanged(step: Step) -> Label:
    """The output's axes are the first input's."""
    return step.label()


def uniform(step: Step) -> Label:
    """One value everywhere: any order is the same."""
    return [free(size) for size in step.shape]


def view(step: Step) -> Label:
    """The same entries in the same order, cut up differently."""
    old = [axis for axis in step.label() if size_of(axis) > 1]
    wanted = [size for size in step.shape if size != 1]
    made: list[Axis] = []
    while old:
        group, sizes = [old.pop(0)], [wanted.pop(0)]
        while (ours := math.prod(map(size_of, group))) != (theirs := math.prod(sizes)):
            if ours < theirs:
                group.append(old.pop(0))
            else:
                sizes.append(wanted.pop(0))
        made += divided(merged(group) if len(group) > 1 else group[0], sizes)
    axes = iter(made)
    return [ONE if size == 1 else next(axes) for size in step.shape]


def permute(step: Step) -> Label:
    """Axes in another order."""
    label = step.label()
    if step.name == "t":
        return label[::-1]
    if step.name.startswith("transpose"):
        a, b = step["dim0"], step["dim1"]
        label[a], label[b] = label[b], label[a]
        return label
    return [label[place] for place in step["dims"]]


def squeeze(step: Step) -> Label:
    """Axes of size one dropped; which ones, the output's shape says."""
    return _inserted([axis for axis in step.label() if size_of(axis) > 1], step.shape)


def unsqueeze(step: Step) -> Label:
    """An axis of size one put in."""
    return _inserted([axis for axis in step.label() if size_of(axis) > 1], step.shape)


def _inserted(axes: Label, shape: Sequence[int]) -> Label:
    rest = iter(axes)
    return [ONE if size == 1 else next(rest) for size in shape]


def expand(step: Step) -> Label:
    """Axes of size one become longer, with the same entry everywhere."""
    label = step.label()
    before: Label = [ONE] * (len(step.shape) - len(label)) + label
    return [
        axis if size_of(axis) == size else free(size) for axis, size in zip(before, step.shape, strict=True)
    ]


def spatial(step: Step) -> Label:
    """Pooling, resizing: the last axes stay as they are, the others do not matter."""
    label = step.label()
    found = re.search(r"([123])d", step.name)
    depth = int(found[1]) if found else 2
    for axis in label[-depth:]:
        hold(axis)
    return [*label[:-depth], *(still(size) for size in step.shape[-depth:])]


def pad(step: Step) -> Label:
    """Constants around: what is added stays as it is."""
    label = step.label()
    sizes = list(step["pad"])
    for place in range(1, len(sizes) // 2 + 1):
        low, high = sizes[2 * place - 2], sizes[2 * place - 1]
        if low < 0 or high < 0:
            hold(label[-place])
            label[-place] = still(step.shape[-place])
        elif low or high:
            edges = [still(size) if size else () for size in (low, high)]
            label[-place] = (*edges[0], *label[-place], *edges[1])
    return label


def concatenate(step: Step) -> Label:
    """One after the other along one axis."""
    labels = [step.labels.of(each) for each in step["tensors"] if each.numel()]
    label = labels[0]
    place = step["dim"] % len(label)
    for other in labels[1:]:
        label = [axis if i == place else unite(axis, other[i]) for i, axis in enumerate(label)]
    label[place] = resolved(tuple(segment for each in labels for segment in each[place]))
    return label


def stack(step: Step) -> Label:
    """Side by side along a new axis."""
    labels = [step.labels.of(each) for each in step["tensors"]]
    label = labels[0]
    for other in labels[1:]:
        label = [unite(a, b) for a, b in zip(label, other, strict=True)]
    place = step["dim"] % (len(label) + 1)
    return [*label[:place], still(len(labels)), *label[place:]]


def repeat(step: Step) -> Label:
    """The same again along an axis."""
    label = step.label()
    before: Label = [ONE] * (len(step.shape) - len(label)) + label
    made = []
    for axis, times in zip(before, step["repeats"], strict=True):
        made.append(free(times) if size_of(axis) == 1 else resolved(axis * times))
    return made


def select(step: Step) -> Label:
    """One position of an axis; the axis goes, and what was within it is what it was there."""
    label = step.label()
    place = step["dim"] % len(label)
    return _picked(label, place, step["index"] % size_of(label[place]))


def unbind(step: Step) -> list[Label]:
    """Every position of an axis by itself."""
    label = step.label()
    place = (step["dim"] or 0) % len(label)
    return [_picked(label, place, i) for i in range(size_of(label[place]))]


def _picked(label: Label, place: int, index: int) -> Label:
    axis = label[place]
    rest = label[:place] + label[place + 1 :]
    if is_still(axis) and not _children(axis, rest):
        return rest
    hold(axis)
    inside = _children(axis, rest)
    picked = {id(atom): pick(atom, index) for atom in inside}
    return [tuple(tuple(picked.get(id(a.root), a) for a in s) for s in each) for each in rest]


def _children(axis: Axis, rest: Label) -> list[Atom]:
    """Atoms in `rest` that are within one of the axis, parents before children."""
    above = {id(atom.root) for segment in axis for atom in segment}
    found: list[Atom] = []
    grown = True
    while grown:
        grown = False
        for atom in (atom.root for each in rest for segment in each for atom in segment):
            known = id(atom) in {id(other) for other in found}
            if not known and not atom.fixed and any(id(p.root) in above for p in atom.parents):
                found.append(atom)
                above.add(id(atom))
                grown = True
    return found


def slice_(step: Step) -> Label:
    """A part of an axis."""
    label = step.label()
    place, size = step["dim"] % len(label), step.shape[step["dim"]]
    whole = size_of(label[place])
    if size == whole:
        return label
    if is_still(label[place]) or step["step"] != 1:
        hold(label[place])
        label[place] = still(size)
        return label
    start = min(
        max((step["start"] or 0) % whole if (step["start"] or 0) < 0 else step["start"] or 0, 0), whole
    )
    sizes = [start, size, whole - start - size]
    label[place] = cut(label[place], [each for each in sizes if each])[int(start > 0)]
    return label


def split(step: Step) -> list[Label]:
    """Consecutive parts of an axis."""
    label = step.label()
    place = (step["dim"] or 0) % len(label)
    pieces = cut(label[place], [tensor.shape[place] for tensor in step.outputs])
    return [[*label[:place], piece, *label[place + 1 :]] for piece in pieces]


def gated(step: Step) -> Label:
    """Two halves of an axis, one the gate of the other."""
    label = step.label()
    place = step["dim"] % len(label)
    half = size_of(label[place]) // 2
    label[place] = unite(*cut(label[place], [half, half]))
    return label


def embedding(step: Step) -> Label:
    """Rows of a table, looked up by number: rows stay, columns are units."""
    weight = step.label("weight")
    hold(weight[0])
    return [*step.label("indices"), *weight[1:]]
