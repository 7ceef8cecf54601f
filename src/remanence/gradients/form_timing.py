"""Measure the constants that decide between the exact forms of a norm, by timing the forms on typical layers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from remanence.gradients.layers import conv_norms, linear
from remanence.gradients.layers.conv_gradients import Window, fills_blocks, needs_no_unfolding
from remanence.gradients.layers.conv_norms import built_norms, gram_norms
from remanence.gradients.layers.gram_blocks import GramCache
from remanence.gradients.layers.linear import built_squared_norms, gram_squared_norms
from remanence.machine.norm_constants import BUILT_IN, NormConstants, norm_constants, using_constants

_NEVER = 1 << 30
"""A threshold that no layer reaches."""
CANDIDATES: dict[str, tuple[Any, ...]] = {
    "built_bytes": tuple(1 << exponent for exponent in range(20, 25)),
    "gram_bytes": tuple(1 << exponent for exponent in range(19, 24)),
    "narrow": (1, 8, 16, 32, 64, 128, 256, _NEVER),
    "channel_block": (8, 16, 32, _NEVER),
    "shift_work": (1, 10, 20, 40, 80, 160, 320),
    "gram_share": (0.2, 0.3, 0.45, 0.6, 0.9, 1.3, 2.0),
}
"""Values to choose from, in the order in which they are chosen: later choices use earlier ones."""
IMPROVEMENT = 0.05
"""The built-in value stays unless another saves this share of the time: less than that is noise."""
CONVOLUTIONS = (
    (32, 3, 16), (32, 8, 8), (32, 16, 16), (32, 64, 64), (16, 16, 16), (16, 32, 32), (16, 64, 64), (16, 128, 128),
    (8, 32, 32), (8, 64, 64), (8, 128, 128), (4, 64, 64),
)  # fmt: skip
"""Side, input channels and output channels of 3 × 3 convolutions."""
LINEARS = (
    (16, 64, 64), (16, 128, 128), (64, 64, 64), (64, 128, 256), (64, 256, 256), (128, 128, 128), (128, 256, 256),
    (128, 384, 384),
)  # fmt: skip
"""Positions, inputs and outputs of linear layers."""
_EXAMPLES, _ROUNDS = 16, 6

Choice = Callable[[], Any]
"""Which form the constants in use choose for a layer."""
Seconds = dict[Any, float]
"""Time of each form of a layer, by the choice that leads to it."""


class Layer(NamedTuple):
    """A convolution: its inputs and output gradients, channels last, and its geometry."""

    x: Tensor
    g: Tensor
    window: Window


def measure_norm_constants() -> NormConstants:
    """Time the forms on the threads that torch uses now; return the constants that choose the fastest. Ten seconds."""
    constants = BUILT_IN
    for measure in (_built_bytes, _gram_bytes, _narrow, _channel_block, _shift_work, _gram_share):
        with using_constants(constants):
            name, layers = measure()
            constants = _fastest(constants, name, layers)
    return constants


def _fastest(constants: NormConstants, name: str, layers: Sequence[tuple[Choice, Seconds]]) -> NormConstants:
    """Replace a constant by the value whose choices take the least time, each layer in units of its fastest form."""

    def cost(value: Any) -> float:
        with using_constants(replace(constants, **{name: value})):
            return sum(seconds[choice()] / min(seconds.values()) for choice, seconds in layers)

    best = min(CANDIDATES[name], key=cost)
    stays = cost(best) > (1 - IMPROVEMENT) * cost(getattr(constants, name))
    return constants if stays else replace(constants, **{name: best})


def _built_bytes() -> tuple[str, list[tuple[Choice, Seconds]]]:
    return _chunk_sizes("built_bytes", built_norms, _convolutions(largest=32))


def _gram_bytes() -> tuple[str, list[tuple[Choice, Seconds]]]:
    return _chunk_sizes("gram_bytes", gram_norms, _convolutions(largest=16))


def _chunk_sizes(
    name: str, form: Callable[..., Tensor], layers: Sequence[Layer]
) -> tuple[str, list[tuple[Choice, Seconds]]]:
    """A form of each layer at each chunk size."""
    works = [
        {size: partial(_with_constant, name, size, form, *layer) for size in CANDIDATES[name]}
        for layer in layers
    ]
    return name, [(lambda: getattr(norm_constants(), name), _seconds(work)) for work in works]


def _narrow() -> tuple[str, list[tuple[Choice, Seconds]]]:
    """Gradients built without unfolding the input, and with it; never by grouped convolutions."""
    with using_constants(replace(norm_constants(), channel_block=_NEVER)):
        return "narrow", [
            (
                partial(needs_no_unfolding, layer.window, layer.x.shape[3]),
                _two_ways("narrow", {True: 1, False: _NEVER}, layer),
            )
            for layer in _convolutions(largest=32)
        ]


def _channel_block() -> tuple[str, list[tuple[Choice, Seconds]]]:
    """Gradients built by a grouped convolution, and by products."""
    return "channel_block", [
        (
            partial(fills_blocks, layer.x.shape[3], layer.g.shape[3]),
            _two_ways("channel_block", {True: 1, False: _NEVER}, layer),
        )
        for layer in _convolutions(largest=32)
    ]


def _two_ways(name: str, values: Mapping[bool, int], layer: Layer) -> Seconds:
    return _seconds(
        {
            choice: partial(_with_constant, name, value, built_norms, *layer)
            for choice, value in values.items()
        }
    )


def _shift_work() -> tuple[str, list[tuple[Choice, Seconds]]]:
    """Convolutions from a Gram matrix, and from gradients that are built."""
    return "shift_work", [
        (
            partial(conv_norms.prefers_gram, x.shape[1:3], g.shape[1:3], x.shape[3], g.shape[3], window),
            _seconds({True: partial(gram_norms, x, g, window), False: partial(built_norms, x, g, window)}),
        )
        for x, g, window in _convolutions(largest=16)
    ]


def _gram_share() -> tuple[str, list[tuple[Choice, Seconds]]]:
    """Linear layers from Gram matrices, and from gradients that are built."""
    layers: list[tuple[Choice, Seconds]] = []
    for t, d, p in LINEARS:
        x, g = torch.randn(_EXAMPLES, t, d), torch.randn(_EXAMPLES, t, p)
        # a new cache every time, since the Gram matrix of the inputs is part of the cost
        forms: dict[Any, Callable[[], object]] = {
            True: lambda x=x, g=g: gram_squared_norms(x, g, GramCache()),  # type: ignore[misc]
            False: partial(built_squared_norms, x, g),
        }
        layers.append((partial(linear.prefers_gram, t, d, p), _seconds(forms)))
    return "gram_share", layers


def _convolutions(largest: int) -> list[Layer]:
    window = Window((3, 3), (1, 1), (1, 1), (1, 1))
    return [
        Layer(torch.randn(_EXAMPLES, side, side, c), torch.randn(_EXAMPLES, side, side, p), window)
        for side, c, p in CONVOLUTIONS
        if side <= largest
    ]


def _with_constant(name: str, value: Any, form: Callable[..., Tensor], *layer: Any) -> Tensor:
    with using_constants(replace(norm_constants(), **{name: value})):
        return form(*layer)


def _seconds(forms: Mapping[Any, Callable[[], object]]) -> Seconds:
    """Shortest processor time of each form; they take turns, so that a busy machine slows all of them alike."""
    seen: dict[Any, list[float]] = {choice: [] for choice in forms}
    for _ in range(_ROUNDS):
        for choice, work in forms.items():
            start = time.process_time()
            work()
            seen[choice].append(time.process_time() - start)
    return {choice: max(min(seconds), 1e-9) for choice, seconds in seen.items()}
