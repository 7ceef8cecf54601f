"""Normalization layers: a scale and a shift after a normalization without parameters."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.errors import InputError
from remanence.gradients.layers.normalization_nodes import FixedNormNode, GroupNormNode, LayerNormNode
from remanence.gradients.layers.rule import (
    Arguments,
    ByRole,
    NodeInputs,
    ParameterUse,
    Roles,
    Rule,
    square_sum,
)

COUPLED_BATCH_NORM = (
    "BatchNorm must use its running statistics for per-example gradients; {where} uses the batch's, so that "
    "every example's output depends on the others. Call model.eval() (with track_running_stats=True), or "
    "replace it by GroupNorm."
)


def _batch_arguments(statistics_flag: str) -> dict[str, Any]:
    """The arguments of `batch_norm` and `instance_norm`, which differ in one name."""
    tensors = ("input", "weight", "bias", "running_mean", "running_var")
    return dict.fromkeys((*tensors, statistics_flag, "momentum", "eps", "cudnn_enabled"))


class Affine(Rule):
    """y = x̂ w + b: the gradient of w is the sum of g x̂, that of b the sum of g, over all but the channel."""

    channels_first = True
    """Whether parameters lie along dimension 1 (BatchNorm) or along the last dimensions (LayerNorm)."""

    def normalized(self, args: dict[str, Any]) -> Tensor:
        """x̂, the output without scale and shift."""
        raise TypeError(f"{type(self).__name__} must define `normalized`.")

    def claims(self, use: ParameterUse) -> bool:
        """A batch along the first dimension, or, for parameters along the last ones, along any other."""
        if self.channels_first:
            return use.layout.dim == 0 and use.args["input"].dim() > 1
        weight = use.args["weight"] if use.args["weight"] is not None else use.args["bias"]
        return use.layout.dim < use.input.dim() - int(weight.dim())

    def gradients(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        if isinstance(use.saved, dict):
            return {role: _by_example(use, use.saved[role])[start:stop] for role in roles}
        g = use.split(use.grad)[start:stop]
        gradients = {}
        if "weight" in roles:
            if use.saved is None:
                use.saved = use.split(self.normalized({**use.args, "input": use.input}))
            gradients["weight"] = self._reduce(g * use.saved[start:stop], use.shape("weight"))
        if "bias" in roles:
            gradients["bias"] = self._reduce(g, use.shape("bias"))
        return gradients

    def squared_norms(self, use: ParameterUse, roles: Roles) -> ByRole:
        """All examples at once where the fused node has saved the gradients."""
        if isinstance(use.saved, dict):
            return {role: square_sum(_by_example(use, use.saved[role])) for role in roles}
        return super().squared_norms(use, roles)

    def _reduce(self, values: Tensor, shape: torch.Size) -> Tensor:
        """[n, one, ...] summed down to [n, *shape]."""
        if self.channels_first:
            return values.flatten(3).sum((1, 3)) if values.dim() > 3 else values.sum(1)
        return values.flatten(1, -1 - len(shape)).sum(1)


class BatchNorm(Affine):
    """Evaluation mode only: training mode couples the examples and is refused."""

    functions = (torch.batch_norm,)
    arguments: ClassVar[Arguments] = _batch_arguments("training")

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = super().bind(*args, **kwargs)
        if bound["training"]:
            raise InputError(COUPLED_BATCH_NORM.format(where="a call of batch_norm"))
        return bound

    def normalized(self, args: dict[str, Any]) -> Tensor:
        return torch.batch_norm(**{**args, "weight": None, "bias": None})

    def fused(self, use: ParameterUse, inputs: NodeInputs) -> Tensor | None:
        """In evaluation mode the backward pass is one product with the scale; torch's own does more."""
        x = use.args["input"]
        if x.dtype not in (torch.float32, torch.float64) or use.args["running_var"] is None:
            return None
        return inputs.apply(FixedNormNode, use)


class InstanceNorm(Affine):
    """Statistics of each example's own channels, or running ones."""

    functions = (torch.instance_norm,)
    arguments: ClassVar[Arguments] = _batch_arguments("use_input_stats")

    def normalized(self, args: dict[str, Any]) -> Tensor:
        unscaled = {**args, "weight": None, "bias": None}
        if args["use_input_stats"]:
            unscaled |= {"running_mean": None, "running_var": None}
        return torch.instance_norm(**unscaled)


class GroupNorm(Affine):
    """Statistics of groups of channels of each example."""

    functions = (torch.group_norm,)
    arguments: ClassVar[Arguments] = {
        "input": None,
        "num_groups": None,
        "weight": None,
        "bias": None,
        "eps": 1e-5,
        "cudnn_enabled": True,
    }

    def normalized(self, args: dict[str, Any]) -> Tensor:
        return torch.group_norm(args["input"], args["num_groups"], None, None, args["eps"])

    def fused(self, use: ParameterUse, inputs: NodeInputs) -> Tensor | None:
        """The sums that the scale and shift need are those that the input's gradient needs."""
        x = use.args["input"]
        dense = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
        if not (_both_parameters(use) and x.dim() >= 3 and dense):
            return None
        return inputs.apply(GroupNormNode, use)


class LayerNorm(Affine):
    """Statistics over the last dimensions."""

    functions = (torch.layer_norm,)
    arguments: ClassVar[Arguments] = {
        "input": None,
        "normalized_shape": None,
        "weight": None,
        "bias": None,
        "eps": 1e-5,
        "cudnn_enable": True,
    }
    channels_first = False

    def normalized(self, args: dict[str, Any]) -> Tensor:
        return torch.layer_norm(args["input"], args["normalized_shape"], None, None, args["eps"])

    def fused(self, use: ParameterUse, inputs: NodeInputs) -> Tensor | None:
        """Mean and deviation of every position are known from the forward pass."""
        if not _both_parameters(use) or use.layout.dim != 0 or not use.args["input"].is_contiguous():
            return None
        return inputs.apply(LayerNormNode, use)


class RMSNorm(Affine):
    """The root mean square over the last dimensions; no shift."""

    functions = (torch.rms_norm,)
    arguments: ClassVar[Arguments] = {"input": None, "normalized_shape": None, "weight": None, "eps": None}
    channels_first = False
    roles = ("weight",)

    def normalized(self, args: dict[str, Any]) -> Tensor:
        return torch.rms_norm(args["input"], args["normalized_shape"], None, args["eps"])


def _by_example(use: ParameterUse, sums: Tensor) -> Tensor:
    """The sums of every image, added up over those of one example."""
    return sums if len(sums) == use.n else use.split(sums).sum(1)


def _both_parameters(use: ParameterUse) -> bool:
    """Whether scale and shift are both parameters, in the precision of the input, and that is not a half one."""
    dtype = use.args["input"].dtype
    both = set(use.sources) == {"weight", "bias"} and use.args["weight"].dtype == dtype
    return both and dtype in (torch.float32, torch.float64)
