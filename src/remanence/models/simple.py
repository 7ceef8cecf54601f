"""Small networks: logistic regression, a multilayer perceptron, a convolutional network for 8×8 images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import nn

from remanence.errors import InputError


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


def small_conv(num_classes: int = 10, in_channels: int = 1, width: int = 16) -> nn.Sequential:
    """A convolutional network for 8×8 images that trains in seconds on one core.

    Three convolutions with GroupNorm, then a linear layer. With BatchNorm, the gradient of an example would depend
    on the other examples of its batch.
    """

    def block(n_in: int, n_out: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        return [convolution, nn.GroupNorm(4, n_out), nn.ReLU()]

    return nn.Sequential(
        *block(in_channels, width, 1),
        *block(width, 2 * width, 2),
        *block(2 * width, 2 * width, 1),
        nn.Flatten(),
        nn.Linear(2 * width * 16, num_classes),
    )
