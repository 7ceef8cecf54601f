"""Small networks: logistic regression, a multilayer perceptron, a convolutional network for small images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import nn

from remanence.errors import InputError

_SMALL_IMAGE = 8


def logistic(in_features: int = 3072, num_classes: int = 10, bias: bool = True) -> nn.Sequential:
    """Multinomial logistic regression on flattened inputs.

    The weights start at zero: the loss is convex, so random ones would only add variance.
    """
    model = mlp(in_features, (), num_classes, bias)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def mlp(
    in_features: int = 3072, hidden: Sequence[int] = (1024, 1024), num_classes: int = 10, bias: bool = True
) -> nn.Sequential:
    """A multilayer perceptron with ReLU on flattened inputs.

    Args:
        in_features: values per input.
        hidden: widths of the hidden layers.
        num_classes: number of classes.
        bias: give the linear layers a bias.
    """
    widths = [in_features, *hidden, num_classes]
    if min(widths) < 1:
        raise InputError(f"Widths must be at least 1; got {', '.join(map(str, widths))}.")
    layers: list[nn.Module] = [nn.Flatten()]
    for n_in, n_out in itertools.pairwise(widths):
        layers += [nn.Linear(n_in, n_out, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def small_conv(
    num_classes: int = 10, in_channels: int = 1, width: int = 16, image: int = 8, norm: str = "group"
) -> nn.Sequential:
    """A convolutional network for small square images that trains in seconds to minutes on one core.

    Three convolutions for images of up to 8×8 pixels, four for larger ones, each followed by a normalization; then a
    linear layer.

    Args:
        num_classes: number of classes.
        in_channels: channels of the images.
        width: channels of the first convolution.
        image: height and width of the images.
        norm: `group` or `batch`. With BatchNorm, the gradient of an example depends on the other examples of its batch.
    """
    if norm not in ("group", "batch"):
        raise InputError(f"`norm` must be group or batch; got {norm!r}.")
    if image < 1:
        raise InputError(f"`image` must be at least 1 pixel; got {image}.")
    small = ((width, 1), (2 * width, 2), (2 * width, 1))
    large = ((width, 2), (2 * width, 1), (2 * width, 2), (4 * width, 2))
    layers: list[nn.Module] = []
    channels, side = in_channels, image
    for n_out, stride in small if image <= _SMALL_IMAGE else large:
        normalized = nn.BatchNorm2d(n_out) if norm == "batch" else nn.GroupNorm(4, n_out)
        layers += [nn.Conv2d(channels, n_out, 3, stride, 1, bias=False), normalized, nn.ReLU()]
        channels, side = n_out, math.ceil(side / stride)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side**2, num_classes))
