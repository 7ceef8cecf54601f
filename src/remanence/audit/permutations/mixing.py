"""Operations that compute: how hidden units run from their inputs to their output.

A rule makes equal what the operation ties together, holds what it tells apart by position, and returns the axes of
the output.
"""

from __future__ import annotations

from remanence.audit.permutations.axes import ONE, Axis, divided, hold, size_of, still, unite
from remanence.audit.permutations.labels import Label, Step


def pointwise(step: Step) -> Label:
    """The same for every entry, with broadcasting."""
    shape = step.shape
    label: Label = [ONE] * len(shape)
    for tensor in step.tensors():
        axes = step.labels.of(tensor)
        for place in range(1, len(axes) + 1):
            if size_of(axes[-place]) == shape[-place]:
                label[-place] = _joined(label[-place], axes[-place], shape[-place])
    return [axis if size_of(axis) == size else still(size) for axis, size in zip(label, shape, strict=True)]


def _joined(a: Axis, b: Axis, size: int) -> Axis:
    return b if size_of(a) != size else unite(a, b)


def matrix_product(step: Step) -> Label:
    """mm, bmm and their kind: the last axis of one with the last but one of the other."""
    names = ("mat1", "mat2") if step.has("mat1") else ("batch1", "batch2")
    names = names if step.has(names[0]) else ("self", "mat2")
    one, other = step.label(names[0]), step.label(names[1])
    unite(one[-1], other[-2])
    label = [*(unite(a, b) for a, b in zip(one[:-2], other[:-2], strict=True)), one[-2], other[-1]]
    if names[0] != "self":
        _add(label, step.label("self"))
    return label


def vector_product(step: Step) -> Label:
    """A matrix times a vector."""
    matrix, vector = step.label("self"), step.label("vec")
    unite(matrix[1], vector[0])
    return matrix[:1]


def linear(step: Step) -> Label:
    """The last axis with the second of the weight, where linear is one operation."""
    label, weight = step.label("input"), step.label("weight")
    unite(label[-1], weight[1])
    label[-1] = weight[0]
    if step.has("bias"):
        _add(label, step.label("bias"))
    return label


def _add(label: Label, other: Label) -> None:
    for place in range(1, len(other) + 1):
        if size_of(other[-place]) == size_of(label[-place]):
            unite(label[-place], other[-place])


def convolution(step: Step) -> Label:
    """Channels like a matrix product; places in space stay. Groups go with their channels."""
    x, weight, groups = step.label("input"), step.label("weight"), step["groups"]
    for axis in (*x[2:], *weight[2:]):
        hold(axis)
    inside, outside = (weight[0], weight[1]) if step["transposed"] else (weight[1], weight[0])
    if groups == 1:
        unite(x[1], inside)
    elif step["transposed"]:
        for axis in (x[1], inside, outside):
            hold(axis)
        outside = still(step.shape[1])
    else:
        # within a group of several inputs the order would have to be kept for each group: held
        ours, within = divided(x[1], (groups, size_of(x[1]) // groups))
        theirs, _ = divided(outside, (groups, size_of(outside) // groups))
        unite(ours, theirs)
        hold(within)
        hold(inside)
    if step.has("bias"):
        outside = unite(outside, step.label("bias")[0])
    return [x[0], outside, *(still(size) for size in step.shape[2:])]


def batch_norm(step: Step) -> Label:
    """One weight, bias, mean and variance a channel."""
    x = step.label("input")
    for name in ("weight", "bias", "running_mean", "running_var"):
        if step.has(name):
            unite(x[1], step.label(name)[0])
    return x


def layer_norm(step: Step) -> Label:
    """Mean and variance over the last axes."""
    x = step.label("input")
    depth = len(step["normalized_shape"])
    for name in ("weight", "bias"):
        if step.has(name):
            _add(x, step.label(name))
    step.reduced.append(x[:-depth])
    return x


def group_norm(step: Step) -> Label:
    """Mean and variance over each group: groups are permuted as blocks, channels within their group."""
    x, groups = step.label("input"), step["group"]
    for name in ("weight", "bias"):
        if step.has(name):
            unite(x[1], step.label(name)[0])
    if 1 < groups < step["C"]:
        blocks, _ = divided(x[1], (groups, step["C"] // groups))
        step.reduced.append([x[0], blocks])
    return x


def softmax(step: Step) -> Label:
    """Normalised along one axis."""
    label = step.label()
    place = step["dim"] % len(label)
    step.reduced.append([axis for i, axis in enumerate(label) if i != place])
    return label


def attention(step: Step) -> Label:
    """For every example and head: units within a head go together in q and k, and in v and the output."""
    q, k, v = (step.label(name) for name in ("query", "key", "value"))
    if size_of(q[1]) != size_of(k[1]):
        for axis in (q[1], k[1], v[1]):
            hold(axis)
    for i in (0, 1):
        if size_of(q[i]) == size_of(k[i]):
            unite(unite(q[i], k[i]), v[i])
    unite(q[3], k[3])
    unite(k[2], v[2])
    for name in ("attn_mask", "attn_bias"):
        if step.has(name):
            _add([q[0], q[1], q[2], k[2]], step.label(name))
    return [q[0], q[1], q[2], v[3]]


def reduction(step: Step) -> Label:
    """Sums, means and the like: some axes go."""
    label = step.label()
    dims = step["dim"]
    dims = [dims] if isinstance(dims, int) else list(dims or range(len(label)))
    gone = {dim % len(label) for dim in dims}
    if step["keepdim"]:
        return [ONE if i in gone else axis for i, axis in enumerate(label)]
    return [axis for i, axis in enumerate(label) if i not in gone]


def extreme(step: Step) -> Label:
    """Largest or smallest along an axis, and where: the axis stays as it is."""
    hold(step.label()[step["dim"]])
    return reduction(step)
