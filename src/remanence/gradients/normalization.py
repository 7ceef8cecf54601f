"""Normalisation layers: a scale and a shift after something that has no parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from remanence.errors import InputError
from remanence.gradients.normalization_nodes import FixedNormNode, GroupNormNode, LayerNormNode
from remanence.gradients.use import Rule, Use, Wiring, square_sum

COUPLED_BATCH_NORM = (
    "BatchNorm must use its running statistics for per-example gradients; {where} uses the batch's, so that "
    "every example's output depends on the others. Call model.eval() (with track_running_stats=True), or "
    "replace it by GroupNorm."
)


class Affine(Rule):
    """y = x̂ w + b: the gradient of w is the sum of g x̂, that of b the sum of g, over all but the channel."""

    channels_first = True
    """Whether parameters lie along dimension 1 (BatchNorm) or along the last dimensions (LayerNorm)."""

    def normalized(self, args: dict[str, Any]) -> Tensor:
        """x̂, the output without scale and shift."""
        raise TypeError(f"{type(self).__name__} must define `normalized`.")

    def claims(self, use: Use) -> bool:
        """A batch along the first dimension, or, for parameters along the last ones, along any other."""
        if self.channels_first:
            return use.layout.dim == 0 and use.args["input"].dim() > 1
        weight = use.args["weight"] if use.args["weight"] is not None else use.args["bias"]
        return use.layout.dim < use.input.dim() - int(weight.dim())

    def gradients(self, use: Use, roles: tuple[str, ...], start: int, stop: int) -> dict[str, Tensor]:
        """Two reductions."""
        if isinstance(use.saved, dict):
            return {role: _by_example(use, use.saved[role])[start:stop] for role in roles}
        g = use.split(use.grad)[start:stop]
        found = {}
        if "weight" in roles:
            if use.saved is None:
                use.saved = use.split(self.normalized({**use.args, "input": use.input}))
            found["weight"] = self._reduce(g * use.saved[start:stop], use.shape("weight"))
        if "bias" in roles:
            found["bias"] = self._reduce(g, use.shape("bias"))
        return found

    def squared_norms(self, use: Use, roles: tuple[str, ...]) -> dict[str, Tensor]:
        """All examples at once where the rule's own node has left the gradients."""
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

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        names = _bound("training", args, kwargs)
        if names["training"]:
            raise InputError(COUPLED_BATCH_NORM.format(where="a call of batch_norm"))
        return names

    def normalized(self, args: dict[str, Any]) -> Tensor:
        return torch.batch_norm(**{**args, "weight": None, "bias": None})

    def fused(self, use: Use, wiring: Wiring) -> Tensor | None:
        """The backward pass in evaluation mode is one product with the scale; the native one does more."""
        x = use.args["input"]
        if x.dtype not in (torch.float32, torch.float64) or use.args["running_var"] is None:
            return None
        return wiring.through(FixedNormNode, use)


class InstanceNorm(Affine):
    """Statistics of each example's own channels, or running ones."""

    functions = (torch.instance_norm,)

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return _bound("use_input_stats", args, kwargs)

    def normalized(self, args: dict[str, Any]) -> Tensor:
        unscaled = {**args, "weight": None, "bias": None}
        if args["use_input_stats"]:
            unscaled |= {"running_mean": None, "running_var": None}
        return torch.instance_norm(**unscaled)


class GroupNorm(Affine):
    """Statistics of groups of channels of each example."""

    functions = (torch.group_norm,)

    def bind(
        self,
        input: Tensor,  # noqa: A002
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> dict[str, Any]:
        return {"input": input, "num_groups": num_groups, "weight": weight, "bias": bias, "eps": eps}

    def normalized(self, args: dict[str, Any]) -> Tensor:
        return torch.group_norm(args["input"], args["num_groups"], None, None, args["eps"])

    def fused(self, use: Use, wiring: Wiring) -> Tensor | None:
        """The sums that the scale and shift need are those that the input's gradient needs."""
        x = use.args["input"]
        if not (_whole(use) and x.dim() >= 3 and x.is_contiguous()):
            return None
        return wiring.through(GroupNormNode, use)


class LayerNorm(Affine):
    """Statistics over the last dimensions."""

    functions = (torch.layer_norm,)
    channels_first = False

    def bind(
        self,
        input: Tensor,  # noqa: A002
        normalized_shape: list[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
        cudnn_enable: bool = True,
    ) -> dict[str, Any]:
        return {
            "input": input,
            "normalized_shape": normalized_shape,
            "weight": weight,
            "bias": bias,
            "eps": eps,
        }

    def normalized(self, args: dict[str, Any]) -> Tensor:
        return torch.layer_norm(args["input"], args["normalized_shape"], None, None, args["eps"])

    def fused(self, use: Use, wiring: Wiring) -> Tensor | None:
        """Mean and spread of every position are there from the forward pass."""
        if not _whole(use) or use.layout.dim != 0 or not use.args["input"].is_contiguous():
            return None
        return wiring.through(LayerNormNode, use)


class RMSNorm(Affine):
    """The root mean square over the last dimensions; no shift."""

    functions = (torch.rms_norm,)
    channels_first = False
    roles = ("weight",)

    def bind(
        self,
        input: Tensor,  # noqa: A002
        normalized_shape: list[int],
        weight: Tensor | None = None,
        eps: float | None = None,
    ) -> dict[str, Any]:
        return {
            "input": input,
            "normalized_shape": normalized_shape,
            "weight": weight,
            "bias": None,
            "eps": eps,
        }

    def normalized(self, args: dict[str, Any]) -> Tensor:
        return torch.rms_norm(args["input"], args["normalized_shape"], None, args["eps"])


def _by_example(use: Use, sums: Tensor) -> Tensor:
    """The sums of every image, added up over those of one example."""
    return sums if len(sums) == use.n else use.split(sums).sum(1)


def _bound(flag: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `batch_norm` and `instance_norm` by name; the two differ in one."""
    statistics = ("running_mean", "running_var")
    names = ("input", "weight", "bias", *statistics, flag, "momentum", "eps", "cudnn_enabled")
    return dict(zip(names, args, strict=False)) | kwargs


def _whole(use: Use) -> bool:
    """Scale and shift are both asked for, in the precision of the input, and that can be summed."""
    kind = use.args["input"].dtype
    both = set(use.sources) == {"weight", "bias"} and use.args["weight"].dtype == kind
    return both and kind in (torch.float32, torch.float64)
