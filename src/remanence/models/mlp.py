"""A multilayer perceptron on flattened inputs."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from remanence.errors import InputError


def mlp(
    in_features: int = 3072, hidden: Sequence[int] = (1024, 1024), num_classes: int = 10
) -> nn.Sequential:
    """Linear layers with ReLU between them; `hidden` lists the widths."""
    if in_features < 1 or num_classes < 1 or any(width < 1 for width in hidden):
        raise InputError(f"Widths must be at least 1; got {in_features}, {list(hidden)}, {num_classes}.")
    layers: list[nn.Module] = [nn.Flatten()]
    before = in_features
    for width in hidden:
        layers += [nn.Linear(before, width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, num_classes))
