"""The rule of every tensor operation. Operations that torch tags as `pointwise` share one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from remanence.audit.permutations import compute_rules, shape_rules
from remanence.audit.permutations.operation import Operation

_SPATIAL = re.compile(r"_?(adaptive_)?(max|avg)_pool|upsample_|reflection_pad|replication_pad|_upsample")
_NORM = re.compile(r"_?(native|cudnn|miopen)_batch_norm|_batch_norm|batch_norm")
RULES: dict[str, Callable[[Operation], Any]] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_alias", "view_copy"), shape_rules.view),
    **dict.fromkeys(("t", "transpose", "transpose_", "permute"), shape_rules.permute),
    **dict.fromkeys(
        ("detach", "alias", "clone", "_to_copy", "lift_fresh", "contiguous"), shape_rules.unchanged
    ),
    **dict.fromkeys(
        ("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like"), shape_rules.uniform
    ),
    **dict.fromkeys(
        ("empty_like", "new_zeros", "new_ones", "new_full", "new_empty", "scalar_tensor"), shape_rules.uniform
    ),
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), compute_rules.matrix_product),
    **dict.fromkeys(
        ("mean", "sum", "amax", "amin", "var", "std", "logsumexp", "prod"), compute_rules.reduction
    ),
    **dict.fromkeys(("linalg_vector_norm", "norm", "any", "all"), compute_rules.reduction),
    **dict.fromkeys(("max", "min"), compute_rules.extreme),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), compute_rules.softmax),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), shape_rules.split),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), compute_rules.layer_norm),
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), compute_rules.convolution),
    **dict.fromkeys(("squeeze", "unsqueeze"), shape_rules.squeeze),
    "expand": shape_rules.expand,
    "linear": compute_rules.linear,
    "mv": compute_rules.vector_product,
    "native_group_norm": compute_rules.group_norm,
    "constant_pad_nd": shape_rules.pad,
    "cat": shape_rules.concatenate,
    "stack": shape_rules.stack,
    "repeat": shape_rules.repeat,
    "select": shape_rules.select,
    "unbind": shape_rules.unbind,
    "slice": shape_rules.slice_,
    "glu": shape_rules.gated,
    "embedding": shape_rules.embedding,
}


def rule_for(op: Any) -> Callable[[Operation], Any] | None:
    """The rule of an operation, None when there is none."""
    name: str = op._schema.name.removeprefix("aten::")
    if name in RULES:
        return RULES[name]
    if name.startswith("_scaled_dot_product"):
        return compute_rules.attention
    if _NORM.match(name):
        return compute_rules.batch_norm
    if _SPATIAL.match(name):
        return shape_rules.spatial
    return compute_rules.pointwise if torch.Tag.pointwise in op.tags else None
