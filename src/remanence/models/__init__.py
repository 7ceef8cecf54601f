"""Networks small enough to read, and the way to one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from remanence.models import loading
from remanence.models.loading import parse_options
from remanence.models.logistic import logistic
from remanence.models.mlp import mlp
from remanence.models.resnet import resnet18
from remanence.models.small_conv import small_conv
from remanence.models.vit import vit_small

MODELS: dict[str, Callable[..., nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "resnet18": resnet18,
    "small_conv": small_conv,
    "vit_small": vit_small,
}


def new_model(
    spec: str, *, input_shape: Sequence[int] | None = None, num_classes: int | None = None, **options: Any
) -> nn.Module:
    """A model by a name in `MODELS`, or by `package.module:function`; see `remanence.models.loading`."""
    return loading.new_model(spec, MODELS, input_shape=input_shape, num_classes=num_classes, **options)


__all__ = [
    "MODELS",
    "logistic",
    "mlp",
    "new_model",
    "parse_options",
    "resnet18",
    "small_conv",
    "vit_small",
]
