"""The registry of rules. To add one, write a `Rule` in a file beside this and list it here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remanence.gradients.conv import Conv, ConvTranspose
from remanence.gradients.elementwise import Difference, PReLU, Quotient, Scale, Sum
from remanence.gradients.embedding import Embedding
from remanence.gradients.linear import Linear, Product
from remanence.gradients.normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from remanence.gradients.use import Rule

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
