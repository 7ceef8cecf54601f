"""The registry of layer rules. To add one, write a `Rule` in this folder and list it here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remanence.gradients.layers.conv import Conv, ConvTranspose
from remanence.gradients.layers.elementwise import Difference, PReLU, Quotient, Scale, Sum
from remanence.gradients.layers.embedding import Embedding
from remanence.gradients.layers.linear import Linear, Product
from remanence.gradients.layers.normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from remanence.gradients.layers.rule import Rule

RULES: tuple[Rule, ...] = (
    Linear(),
    Product(),
    Conv(),
    ConvTranspose(),
    BatchNorm(),
    InstanceNorm(),
    GroupNorm(),
    LayerNorm(),
    RMSNorm(),
    Embedding(),
    Sum(),
    Difference(),
    Scale(),
    Quotient(),
    PReLU(),
)

RULE_OF: dict[Callable[..., Any], Rule] = {function: rule for rule in RULES for function in rule.functions}
