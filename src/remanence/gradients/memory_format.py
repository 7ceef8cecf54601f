"""Memory format: on a CPU, convolutions and their norms are faster with channels last."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remanence.batches import Batch, mapped


def has_2d_convolutions(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def weight_gradients_safe(model: nn.Module) -> bool:
    """Whether torch's weight gradients may be computed with channels last.

    Those of strided 1x1 convolutions with fewer than eight input channels write past their end (oneDNN 3.12
    in torch 2.13: a plain `backward()` ends in "double free or corruption"); input gradients do not.
    """
    return not any(
        isinstance(module, nn.Conv2d)
        and max(module.kernel_size) == 1
        and max(module.stride) > 1
        and module.in_channels < 8
        for module in model.modules()
    )


class MemoryFormat:
    """Inputs and parameter values in the format of a pass; values are converted once, until they change."""

    def __init__(self, channels_last: bool) -> None:
        self.channels_last = channels_last
        self._converted: dict[int, tuple[int, int, Tensor]] = {}

    def inputs(self, batch: Batch) -> Batch:
        return mapped(batch, _channels_last) if self.channels_last else batch

    def values(self, parameters: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Every parameter's value, detached from its graph."""
        if not self.channels_last:
            return {key: tensor.detach() for key, tensor in parameters.items()}
        return {key: self._value(key, tensor) for key, tensor in parameters.items()}

    def _value(self, key: int, tensor: Tensor) -> Tensor:
        if tensor.dim() != 4:
            return tensor.detach()
        identity = (tensor.data_ptr(), tensor._version)
        converted = self._converted.get(key)
        if converted is None or converted[:2] != identity:
            converted = self._converted[key] = (*identity, _channels_last(tensor.detach()))
        return converted[2]


def _channels_last(tensor: Tensor) -> Tensor:
    if tensor.dim() != 4 or not tensor.is_floating_point():
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)
