"""Gram matrices of several blocks and gradients in several chunks, against plain products and the loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import remanence as rm
from remanence.gradients import example_gradients_gram, example_gram
from remanence.gradients.example_loop import loop_squared_norms
from remanence.gradients.layers import conv_norms, linear, rule
from remanence.gradients.layers.conv_gradients import Window
from remanence.gradients.layers.conv_norms import weight_squared_norms
from remanence.gradients.layers.gram_blocks import (
    GRAM_TRUST,
    GramCache,
    blocks_like,
    entries_sum,
    product_sum,
    trace,
    upper_gram,
)
from remanence.gradients.layers.linear import gram_squared_norms, prefers_gram
from remanence.losses import cross_entropy
from remanence.machine import NormConstants, using_constants

POSITIONS = [1, 31, 32, 63, 64, 65, 71, 96, 127]
"""One block below 64; the odd ones have a first block of another size."""


def loop(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    rows = loop_squared_norms(model, x, y, cross_entropy, dict(model.named_parameters()))
    return torch.stack(list(rows.values())).sum(0).sqrt()


@pytest.mark.parametrize("t", POSITIONS)
def test_half_matrices_stand_for_whole_ones(t: int) -> None:
    torch.manual_seed(t)
    x, other = torch.randn(3, t, 5).double(), torch.randn(3, t, 7).double()
    whole, beside = x @ x.transpose(1, 2), other @ other.transpose(1, 2)
    half = upper_gram(x)
    assert len(half) == max(1, t // 32)
    for a, b in zip(half, blocks_like(whole, half), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(trace(half), whole.diagonal(dim1=1, dim2=2).sum(1))
    torch.testing.assert_close(entries_sum(half), whole.sum((1, 2)))
    torch.testing.assert_close(product_sum(blocks_like(beside, half), half), (whole * beside).sum((1, 2)))


@pytest.mark.parametrize("t", [64, 71, 101])
def test_the_gram_form_of_a_linear_layer_in_blocks(t: int) -> None:
    torch.manual_seed(t)
    model = nn.Sequential(
        nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 200), nn.Flatten(), nn.Linear(200 * t, 10)
    )
    model, x, y = model.double(), torch.randn(3, t, 200).double(), torch.arange(3)
    assert prefers_gram(t, 200, 200)
    torch.testing.assert_close(rm.example_gradient_norms(model, x, y), loop(model, x, y), rtol=1e-10, atol=0)


@pytest.mark.parametrize("side", [(8, 8), (9, 9), (9, 11)], ids=str)
@pytest.mark.parametrize("at_a_time", [1, 100])
def test_the_gram_form_of_a_convolution_in_blocks(side: tuple[int, int], at_a_time: int) -> None:
    torch.manual_seed(0)
    t = side[0] * side[1]
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(64 * t, 10))
    model, x, y = model.double(), torch.randn(3, 64, *side).double(), torch.arange(3)
    assert conv_norms.prefers_gram(side, side, 64, 64, Window((3, 3), (1, 1), (1, 1), (1, 1)))
    with using_constants(NormConstants(gram_bytes=at_a_time * t**2 * 8)):
        norms = rm.example_gradient_norms(model, x, y)
    torch.testing.assert_close(norms, loop(model, x, y), rtol=1e-10, atol=0)


class Several(nn.Module):
    """Gradients that are built (few features, many positions), a layer used twice, a fallback, a conv with groups."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.wide = nn.Linear(6, 6), nn.Linear(6, 8)
        self.grouped, self.pair = nn.Conv1d(8, 8, 3, groups=2), nn.Bilinear(8, 8, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.twice(torch.tanh(self.twice(x))))
        h = self.grouped(torch.tanh(self.wide(h)).transpose(1, 2)).mean(2)
        out: Tensor = self.pair(h, h)
        return out


@pytest.mark.parametrize("examples", [1, 2, 3, 100])
@pytest.mark.filterwarnings("ignore::remanence.gradients.FallbackWarning")
def test_chunks_do_not_matter(examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x, y = Several().double(), torch.randn(7, 20, 6).double(), torch.arange(7)
    monkeypatch.setattr(rule, "CHUNK_BYTES", examples * 8 * 96)
    seen: list[int] = []
    chunks: Any = rule.chunks

    def counting(n: int, numel: int, like: Tensor) -> Any:
        spans = list(chunks(n, numel, like))
        seen.append(len(spans))
        return iter(spans)

    monkeypatch.setattr(rule, "chunks", counting)
    monkeypatch.setattr(linear, "chunks", counting)
    found = rm.example_gradient_norms(model, x, y)
    torch.testing.assert_close(found, loop(model, x, y), rtol=1e-10, atol=0)
    assert (max(seen) > 1) == (examples < 100)


@pytest.mark.parametrize("examples", [1, 2, 3, 100])
@pytest.mark.filterwarnings("ignore::remanence.gradients.FallbackWarning")
def test_blocks_of_a_gram_matrix_do_not_matter(examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x, y = Several().double(), torch.randn(7, 20, 6).double(), torch.arange(7)
    monkeypatch.setattr(example_gram, "BLOCK_BYTES", examples * 8 * 640)
    rows = []
    for i in range(7):
        loss = cross_entropy(model(x[i : i + 1]), y[i : i + 1]).sum()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
    expected = torch.stack(rows) @ torch.stack(rows).T
    torch.testing.assert_close(example_gradients_gram(model, x, y), expected, rtol=1e-10, atol=1e-12)


def cancelling(t: int, mixed: float, n: int = 16, d: int = 200) -> tuple[Tensor, Tensor]:
    """Inputs nearly the same at all positions, gradients of alternating sign, and some of neither."""
    x = torch.randn(n, 1, d) + 0.05 * torch.randn(n, t, d)
    sign = torch.tensor([1.0, -1.0]).repeat(t)[:t] * (torch.arange(t) < t - t % 2)
    return x, torch.randn(n, 1, d) * sign.view(1, t, 1) + mixed * torch.randn(n, t, d)


@pytest.mark.parametrize("t", [16, 65, 90])
def test_the_gram_form_is_exact_on_both_sides_of_its_threshold(t: int) -> None:
    """In float32, to the 1e-5 that is promised, where sums cancel most among those that are trusted."""
    torch.manual_seed(t)
    trusted = []
    for mixed in torch.logspace(-2, 0.5, 30).tolist():
        x, g = cancelling(t, mixed)
        weight, bias = gram_squared_norms(x, g, GramCache())
        exact = torch.einsum("ntp,ntd->npd", g.double(), x.double()).flatten(1).square().sum(1)
        torch.testing.assert_close(weight.double().sqrt(), exact.sqrt(), rtol=1e-5, atol=0)
        torch.testing.assert_close(bias.double(), g.double().sum(1).square().sum(1), rtol=2e-5, atol=0)
        trusted.append(exact * t / (trace(upper_gram(x)) * trace(upper_gram(g))))
    share = torch.cat(trusted)
    assert ((share > GRAM_TRUST) & (share < 2 * GRAM_TRUST)).sum() > 5


def test_the_gram_form_of_a_convolution_is_exact_on_both_sides_of_its_threshold() -> None:
    torch.manual_seed(0)
    window, side, c = Window((3, 3), (1, 1), (1, 1), (1, 1)), 9, 64
    for mixed in torch.logspace(-2, 0.5, 20).tolist():
        x, g = (part.reshape(8, side, side, c) for part in cancelling(side**2, mixed, 8, c))
        weight = torch.zeros(c, c, 3, 3, dtype=torch.float64, requires_grad=True)
        images, grads = x.permute(0, 3, 1, 2).double(), g.permute(0, 3, 1, 2).double()
        exact = [
            torch.autograd.grad(F.conv2d(images[i : i + 1], weight, padding=1), weight, grads[i : i + 1])[
                0
            ].norm()
            for i in range(8)
        ]
        found = weight_squared_norms(x, g, window).double().sqrt()
        torch.testing.assert_close(found, torch.stack(exact), rtol=1e-5, atol=0)
