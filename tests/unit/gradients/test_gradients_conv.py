"""A convolution's weight gradients, built in every form: against autograd, example by example."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.gradients.layers import conv_gradients
from remanence.gradients.layers.conv_gradients import GROUPED, PATCHES, ROWS, STRIDES, Form, Window
from remanence.gradients.layers.conv_norms import weight_squared_norms_and_sum
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


def gradients_by_autograd(x: Tensor, channels_out: int, window: Window) -> tuple[Tensor, Tensor]:
    """Output gradients [n, p, h', w'] and the weight gradient of every example."""
    weight = torch.randn(channels_out, x.shape[1], *window.kernel, dtype=x.dtype, requires_grad=True)
    out = F.conv2d(x, weight, stride=window.stride, padding=window.padding, dilation=window.dilation)
    grads = torch.randn_like(out)
    rows = [torch.autograd.grad(out[i], weight, grads[i], retain_graph=True)[0] for i in range(len(x))]
    return grads, torch.stack(rows)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("channels", [1, 16])
@pytest.mark.parametrize("at_a_time", [1, 3, 100])
def test_built_gradients_are_those_of_autograd(name: str, channels: int, at_a_time: int) -> None:
    window, sides = GEOMETRIES[name]
    torch.manual_seed(0)
    x = torch.randn(7, channels, *sides, dtype=torch.float64)
    grads, right = gradients_by_autograd(x, 5, window)
    images = x.permute(0, 2, 3, 1), grads.permute(0, 2, 3, 1)

    with using_constants(_cut_into(at_a_time, window, *images)):
        norms, total = weight_squared_norms_and_sum(*images, window)

    torch.testing.assert_close(norms, right.flatten(1).square().sum(1), rtol=1e-12, atol=0)
    torch.testing.assert_close(total, right.sum(0), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        pytest.param(form, name, id=f"{label}-{name}")
        for label, form in {"grouped": GROUPED, "strides": STRIDES, "patches": PATCHES, "rows": ROWS}.items()
        for name, (window, _) in GEOMETRIES.items()
        # the taps of a row lie side by side
        if form is not STRIDES or (window.stride == (1, 1) and window.dilation[1] == 1)
    ],
)
def test_every_form_builds_the_gradients_of_autograd(form: Form, name: str) -> None:
    window, sides = GEOMETRIES[name]
    torch.manual_seed(1)
    x = torch.randn(3, 16, *sides)
    grads, right = gradients_by_autograd(x, 32, window)
    built = form.build(x.permute(0, 2, 3, 1), grads.permute(0, 2, 3, 1), window)
    for example, gradient in enumerate(right):
        own = form.to_weight(built[:, example].reshape(form.shape(window, 16, 32)))
        torch.testing.assert_close(own, gradient, rtol=1e-4, atol=1e-4)


def test_whole_blocks_of_channels_are_built_by_a_grouped_convolution() -> None:
    window = GEOMETRIES["usual"][0]
    x, g = torch.randn(2, 9, 7, 32), torch.randn(2, 9, 7, 16)
    vectorized = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    assert (conv_gradients.choose_form(x, g, window) is GROUPED) is vectorized
    assert conv_gradients.choose_form(x, g[..., :9], window) is not GROUPED
    assert conv_gradients.choose_form(x.double(), g.double(), window) is not GROUPED


def _cut_into(examples: int, window: Window, x: Tensor, g: Tensor) -> NormConstants:
    """As if the cache held this many examples."""
    numel = max(STRIDES.numel(x, g, window), PATCHES.numel(x, g, window))
    return NormConstants(built_bytes=examples * numel * x.element_size())
