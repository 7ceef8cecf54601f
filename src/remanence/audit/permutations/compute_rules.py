"""Rules of operations that compute: how hidden units run from the inputs to the output.

A rule unites the axes that the operation combines, fixes those whose positions it distinguishes, and returns the axes
of the output.
"""

from __future__ import annotations

from remanence.audit.permutations.operation import Operation, TensorAxes
from remanence.audit.permutations.unit_axes import ONE, Axis, divided, fix, fixed_axis, size_of, unite


def pointwise(op: Operation) -> TensorAxes:
    """The same for every entry, with broadcasting."""
    shape = op.shape
    axes: TensorAxes = [ONE] * len(shape)
    for tensor in op.tensors():
        own = op.record.of(tensor)
        for k in range(1, len(own) + 1):
            if size_of(own[-k]) == shape[-k]:
                axes[-k] = _joined(axes[-k], own[-k], shape[-k])
    return [
        axis if size_of(axis) == size else fixed_axis(size) for axis, size in zip(axes, shape, strict=True)
    ]


def _joined(a: Axis, b: Axis, size: int) -> Axis:
    return b if size_of(a) != size else unite(a, b)


def matrix_product(op: Operation) -> TensorAxes:
    """mm, bmm and similar: the last axis of the left operand with the last but one of the right."""
    names = ("mat1", "mat2") if op.has("mat1") else ("batch1", "batch2")
    names = names if op.has(names[0]) else ("self", "mat2")
    one, other = op.axes(names[0]), op.axes(names[1])
    unite(one[-1], other[-2])
    axes = [*(unite(a, b) for a, b in zip(one[:-2], other[:-2], strict=True)), one[-2], other[-1]]
    if names[0] != "self":
        _add(axes, op.axes("self"))
    return axes


def vector_product(op: Operation) -> TensorAxes:
    """A matrix times a vector."""
    matrix, vector = op.axes("self"), op.axes("vec")
    unite(matrix[1], vector[0])
    return matrix[:1]


def linear(op: Operation) -> TensorAxes:
    """The last axis with the second of the weight, where linear is one operation."""
    axes, weight = op.axes("input"), op.axes("weight")
    unite(axes[-1], weight[1])
    axes[-1] = weight[0]
    if op.has("bias"):
        _add(axes, op.axes("bias"))
    return axes


def _add(axes: TensorAxes, other: TensorAxes) -> None:
    for k in range(1, len(other) + 1):
        if size_of(other[-k]) == size_of(axes[-k]):
            unite(axes[-k], other[-k])


def convolution(op: Operation) -> TensorAxes:
    """Channels as in a matrix product; positions in space are fixed. Groups are permuted with their channels."""
    x, weight, groups = op.axes("input"), op.axes("weight"), op["groups"]
    for axis in (*x[2:], *weight[2:]):
        fix(axis)
    inside, outside = (weight[0], weight[1]) if op["transposed"] else (weight[1], weight[0])
    if groups == 1:
        unite(x[1], inside)
    elif op["transposed"]:
        for axis in (x[1], inside, outside):
            fix(axis)
        outside = fixed_axis(op.shape[1])
    else:
        # within a group of several inputs, the order would have to be known for each group, so it is fixed
        input_groups, within = divided(x[1], (groups, size_of(x[1]) // groups))
        output_groups, _ = divided(outside, (groups, size_of(outside) // groups))
        unite(input_groups, output_groups)
        fix(within)
        fix(inside)
    if op.has("bias"):
        outside = unite(outside, op.axes("bias")[0])
    return [x[0], outside, *(fixed_axis(size) for size in op.shape[2:])]


def batch_norm(op: Operation) -> TensorAxes:
    """One weight, bias, mean and variance per channel."""
    x = op.axes("input")
    for name in ("weight", "bias", "running_mean", "running_var"):
        if op.has(name):
            unite(x[1], op.axes(name)[0])
    return x


def layer_norm(op: Operation) -> TensorAxes:
    """Mean and variance over the last axes."""
    x = op.axes("input")
    depth = len(op["normalized_shape"])
    for name in ("weight", "bias"):
        if op.has(name):
            _add(x, op.axes(name))
    op.reduced.append(x[:-depth])
    return x


def group_norm(op: Operation) -> TensorAxes:
    """Mean and variance over each group: groups are permuted as blocks, channels within their group."""
    x, groups = op.axes("input"), op["group"]
    for name in ("weight", "bias"):
        if op.has(name):
            unite(x[1], op.axes(name)[0])
    if 1 < groups < op["C"]:
        blocks, _ = divided(x[1], (groups, op["C"] // groups))
        op.reduced.append([x[0], blocks])
    return x


def softmax(op: Operation) -> TensorAxes:
    """Normalized along one axis."""
    axes = op.axes()
    dim = op["dim"] % len(axes)
    op.reduced.append([axis for i, axis in enumerate(axes) if i != dim])
    return axes


def attention(op: Operation) -> TensorAxes:
    """For every example and head: units within a head are common to q and k, and to v and the output."""
    q, k, v = (op.axes(name) for name in ("query", "key", "value"))
    if size_of(q[1]) != size_of(k[1]):
        for axis in (q[1], k[1], v[1]):
            fix(axis)
    for i in (0, 1):
        if size_of(q[i]) == size_of(k[i]):
            unite(unite(q[i], k[i]), v[i])
    unite(q[3], k[3])
    unite(k[2], v[2])
    for name in ("attn_mask", "attn_bias"):
        if op.has(name):
            _add([q[0], q[1], q[2], k[2]], op.axes(name))
    return [q[0], q[1], q[2], v[3]]


def reduction(op: Operation) -> TensorAxes:
    """Sums, means and similar: some axes disappear."""
    axes = op.axes()
    dims = op["dim"]
    dims = [dims] if isinstance(dims, int) else list(dims or range(len(axes)))
    removed = {dim % len(axes) for dim in dims}
    if op["keepdim"]:
        return [ONE if i in removed else axis for i, axis in enumerate(axes)]
    return [axis for i, axis in enumerate(axes) if i not in removed]


def extreme(op: Operation) -> TensorAxes:
    """Maximum or minimum along an axis, and its position: the axis is fixed."""
    fix(op.axes()[op["dim"]])
    return reduction(op)
