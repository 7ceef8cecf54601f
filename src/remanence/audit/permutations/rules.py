"""Which rule goes with which tensor operation.

Operations that are the same for every entry (torch tags them `pointwise`) share one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from remanence.audit.permutations import mixing, shaping
from remanence.audit.permutations.labels import Step

_SPATIAL = re.compile(r"_?(adaptive_)?(max|avg)_pool|upsample_|reflection_pad|replication_pad|_upsample")
_NORM = re.compile(r"_?(native|cudnn|miopen)_batch_norm|_batch_norm|batch_norm")
RULES: dict[str, Callable[[Step], Any]] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_alias", "view_copy"), shaping.view),
    **dict.fromkeys(("t", "transpose", "transpose_", "permute"), shaping.permute),
    **dict.fromkeys(("detach", "alias", "clone", "_to_copy", "lift_fresh", "contiguous"), shaping.unchanged),
    **dict.fromkeys(
        ("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like"), shaping.uniform
    ),
    **dict.fromkeys(
        ("empty_like", "new_zeros", "new_ones", "new_full", "new_empty", "scalar_tensor"), shaping.uniform
    ),
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), mixing.matrix_product),
    **dict.fromkeys(("mean", "sum", "amax", "amin", "var", "std", "logsumexp", "prod"), mixing.reduction),
    **dict.fromkeys(("linalg_vector_norm", "norm", "any", "all"), mixing.reduction),
    **dict.fromkeys(("max", "min"), mixing.extreme),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), mixing.softmax),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), shaping.split),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), mixing.layer_norm),
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), mixing.convolution),
    "squeeze": shaping.squeeze,
    "unsqueeze": shaping.unsqueeze,
    "expand": shaping.expand,
    "linear": mixing.linear,
    "mv": mixing.vector_product,
    "native_group_norm": mixing.group_norm,
    "constant_pad_nd": shaping.pad,
    "cat": shaping.concatenate,
    "stack": shaping.stack,
    "repeat": shaping.repeat,
    "select": shaping.select,
    "unbind": shaping.unbind,
    "slice": shaping.slice_,
    "glu": shaping.gated,
    "embedding": shaping.embedding,
}


def rule_for(op: Any) -> Callable[[Step], Any] | None:
    """The rule of an operation, None when there is none."""
    name: str = op._schema.name.removeprefix("aten::")
    if name in RULES:
        return RULES[name]
    if name.startswith("_scaled_dot_product"):
        return mixing.attention
    if _NORM.match(name):
        return mixing.batch_norm
    if _SPATIAL.match(name):
        return shaping.spatial
    return mixing.pointwise if torch.Tag.pointwise in op.tags else None
