"""Networks small enough to read."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from remanence.models.mlp import mlp
from remanence.models.resnet import resnet18
from remanence.models.small_conv import small_conv
from remanence.models.vit import vit_small

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "resnet18": resnet18,
    "small_conv": small_conv,
    "vit_small": vit_small,
}

__all__ = ["MODELS", "mlp", "resnet18", "small_conv", "vit_small"]
