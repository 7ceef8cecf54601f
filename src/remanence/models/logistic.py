"""Multinomial logistic regression."""

from __future__ import annotations

from torch import nn

from remanence.errors import InputError


def logistic(in_features: int = 3072, num_classes: int = 10, bias: bool = True) -> nn.Sequential:
    """One linear layer on flattened inputs, started at zero: the loss is convex, so there is no better start."""
    if in_features < 1 or num_classes < 1:
        raise InputError(f"Widths must be at least 1; got {in_features} and {num_classes}.")
    linear = nn.Linear(in_features, num_classes, bias=bias)
    for parameter in linear.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(nn.Flatten(), linear)
