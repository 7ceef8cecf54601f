"""Networks small enough to read, and the way to one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from remanence.models.loading import Described, made_model, parse_options
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


def build_model(spec: str, examples: Described, **options: Any) -> nn.Module:
    """A new model for these examples.

    Args:
        spec: a name in `MODELS`, or `package.module:function` for one's own.
        examples: what it is for. Their shape and classes fill in what the function asks for and the caller left
            out: `in_channels`, `in_features`, `image` (the side of a square picture), `num_classes`.
        options: handed to the function.
    """
    return made_model(spec, MODELS, examples, options)


__all__ = [
    "MODELS",
    "build_model",
    "logistic",
    "mlp",
    "parse_options",
    "resnet18",
    "small_conv",
    "vit_small",
]
