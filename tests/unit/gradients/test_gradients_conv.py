"""A convolution's weight gradients, built: against autograd, example by example, in double precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from remanence.gradients.layers import conv_norms
from remanence.gradients.layers.conv_norms import Window, weight_squared_norms_and_sum
from remanence.machine import NormConstants, using_constants

GEOMETRIES = {
    "usual": (Window((3, 3), (1, 1), (1, 1), (1, 1)), (9, 7)),
    "no padding": (Window((3, 3), (1, 1), (0, 0), (1, 1)), (6, 8)),
    "more padding than kernel": (Window((2, 2), (1, 1), (3, 4), (1, 1)), (4, 5)),
    "a row of taps": (Window((1, 5), (1, 1), (0, 2), (1, 1)), (5, 6)),
    "a column of taps": (Window((5, 1), (1, 1), (2, 0), (1, 1)), (6, 5)),
    "rows apart": (Window((3, 3), (1, 1), (2, 1), (2, 1)), (7, 6)),
    "one output": (Window((4, 4), (1, 1), (0, 0), (1, 1)), (4, 4)),
    "one row of two outputs": (Window((2, 4), (1, 1), (0, 0), (1, 1)), (2, 5)),
    "columns apart": (Window((3, 3), (1, 1), (1, 2), (1, 2)), (6, 7)),
    "every second": (Window((3, 3), (2, 2), (1, 1), (1, 1)), (8, 8)),
    "every second column": (Window((3, 3), (1, 2), (1, 1), (1, 1)), (6, 8)),
    "every second row": (Window((3, 3), (2, 1), (1, 1), (1, 1)), (8, 7)),
}


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("channels", [1, 16])
@pytest.mark.parametrize("at_a_time", [1, 3, 100])
def test_built_gradients_are_those_of_autograd(name: str, channels: int, at_a_time: int) -> None:
    window, sides = GEOMETRIES[name]
    torch.manual_seed(0)
    x = torch.randn(7, channels, *sides, dtype=torch.float64)
    weight = torch.randn(5, channels, *window.kernel, dtype=torch.float64, requires_grad=True)
    out = F.conv2d(x, weight, stride=window.stride, padding=window.padding, dilation=window.dilation)
    grads = torch.randn_like(out)
    right = torch.stack(
        [torch.autograd.grad(out[i], weight, grads[i], retain_graph=True)[0] for i in range(len(x))]
    )
    images = x.permute(0, 2, 3, 1), grads.permute(0, 2, 3, 1)

    with using_constants(_cut_into(at_a_time, window, *images)):
        norms, total = weight_squared_norms_and_sum(*images, window)

    torch.testing.assert_close(norms, right.flatten(1).square().sum(1), rtol=1e-12, atol=0)
    torch.testing.assert_close(total, right.sum(0), rtol=1e-11, atol=1e-11)


def _cut_into(examples: int, window: Window, x: torch.Tensor, g: torch.Tensor) -> NormConstants:
    """As if the cache held this many examples."""
    numel = max(conv_norms._strides_numel(x, g, window), conv_norms._patches_numel(x, g, window))
    return NormConstants(built_bytes=examples * numel * x.element_size())
