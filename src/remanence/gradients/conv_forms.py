"""Squared norms of a convolution's per-example weight gradients, two exact ways, channels last.

The gradient of the tap (a, b) is Σₜ gₜ x_{t+(a,b)}ᵀ over output positions t. Either it is built, by one
batched product with the unfolded input, or only its norm is: Σ over pairs of positions of (g·g') times the
inner products of the inputs under them, which are diagonal shifts of one Gram matrix of the raw input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.gradients.halves import GRAM_TRUST, half_gram, matching, paired, trace
from remanence.gradients.use import square_sum_

UNFOLDED_BYTES = 2 << 20
"""Unfolded input at a time; more leaves the cache before the product has used it."""
GRAM_BYTES = 2 << 20
NARROW = 16
"""Columns below which a matrix product leaves most of a vector register empty."""
SHIFT_WORK = 40
"""What shifting and adding one entry of a Gram matrix costs, in multiply-adds of a matrix product."""


@dataclass(frozen=True)
class Window:
    """The geometry of a two-dimensional convolution without groups."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def size_out(self, axis: int, size_in: int) -> int:
        """Output positions along an axis."""
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        return (size_in + 2 * self.padding[axis] - reach) // self.stride[axis] + 1

    def rows(self, axis: int, tap: int, size_in: int, size_out: int) -> tuple[slice, slice]:
        """Output positions whose input under this tap lies in the image, and those inputs."""
        shift = tap * self.dilation[axis] - self.padding[axis]
        step = self.stride[axis]
        low = max(0, -(shift // step)) if shift < 0 else 0
        high = min(size_out, (size_in - 1 - shift) // step + 1)
        if high <= low:
            return slice(0, 0), slice(0, 0)
        first = low * step + shift
        return slice(low, high), slice(first, first + (high - low - 1) * step + 1, step)


def weight_squared_norms(x: Tensor, g: Tensor, window: Window) -> Tensor:
    """‖gradient‖² of each example for inputs [n, h, w, c] and output gradients [n, h', w', p]."""
    if prefers_gram(x.shape[1:3], g.shape[1:3], x.shape[3], g.shape[3], window):
        return _gram(x, g, window)
    return _unfolded(x, g, window)


def weight_squared_norms_and_sum(x: Tensor, g: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """The squared norms, and the batch's weight gradient [p, c, kernel height, kernel width]."""
    (height, width), c, p = window.kernel, x.shape[3], g.shape[3]
    blocks = height if _by_lines(window, c) else 1
    total = x.new_zeros(blocks, p, height // blocks * width * c)
    norms = _unfolded(x, g, window, total)
    if blocks > 1:
        return norms, total.view(height, p, width, c).permute(1, 3, 0, 2)
    return norms, total.view(p, height, width, c).permute(0, 3, 1, 2)


def prefers_gram(sides_in: Sequence[int], sides_out: Sequence[int], c: int, p: int, window: Window) -> bool:
    """Multiply-adds of both forms, counted."""
    t_in, t_out = sides_in[0] * sides_in[1], sides_out[0] * sides_out[1]
    taps = window.kernel[0] * window.kernel[1]
    return t_in**2 * (c + SHIFT_WORK) + t_out**2 * p < taps * t_out * c * p


def _unfolded(x: Tensor, g: Tensor, window: Window, total: Tensor | None = None) -> Tensor:
    """Built in chunks, squared, forgotten; or first added to `total` [kernel heights, p, rest]."""
    lines = _by_lines(window, x.shape[3])
    taps = window.kernel[1] if lines else window.kernel[0] * window.kernel[1]
    one = g.shape[1] * g.shape[2] * taps * x.shape[3] * x.element_size()
    step = max(1, UNFOLDED_BYTES // one)
    parts = []
    for i in range(0, len(x), step):
        grads = g[i : i + step].flatten(1, 2).transpose(1, 2)
        views = (_lines if lines else _patches)(x[i : i + step], g.shape[1], g.shape[2], window)
        built = [torch.bmm(grads, view) for view in views]
        if total is not None:
            for k, gradient in enumerate(built):
                total[k] += gradient.sum(0)
        parts.append(sum(square_sum_(gradient) for gradient in built))
    return torch.cat(parts)  # type: ignore[arg-type]


def _by_lines(window: Window, c: int) -> bool:
    """Whether to unfold along the width only, with a product for each tap of the height.

    That is enough where rows of output and input keep step: the inputs of a lower tap are then the same rows,
    further down, a view. With very few channels the products would be too narrow to pay.
    """
    return window.stride[0] == 1 and window.kernel[1] * c >= NARROW


def _lines(x: Tensor, height: int, width: int, window: Window) -> list[Tensor]:
    """For each tap of the kernel's height, [n, h' w', kernel width · c]."""
    x = _padded(x, window)
    image, row, column, channel = x.stride()
    shape = (x.shape[0], x.shape[1], width, window.kernel[1], x.shape[3])
    strides = (image, row, column * window.stride[1], column * window.dilation[1], channel)
    wide = x.as_strided(shape, strides).reshape(x.shape[0], x.shape[1] * width, -1)
    firsts = (tap * window.dilation[0] * width for tap in range(window.kernel[0]))
    return [wide[:, first : first + height * width] for first in firsts]


def _patches(x: Tensor, height: int, width: int, window: Window) -> list[Tensor]:
    """[n, h' w', kernel height · kernel width · c]."""
    x = _padded(x, window)
    image, row, column, channel = x.stride()
    (step_h, step_w), (gap_h, gap_w) = window.stride, window.dilation
    shape = (x.shape[0], height, width, *window.kernel, x.shape[3])
    strides = (image, row * step_h, column * step_w, row * gap_h, column * gap_w, channel)
    return [x.as_strided(shape, strides).reshape(x.shape[0], height * width, -1)]


def _padded(x: Tensor, window: Window) -> Tensor:
    (pad_h, pad_w) = window.padding
    return F.pad(x, (0, 0, pad_w, pad_w, pad_h, pad_h)).contiguous()


def _gram(x: Tensor, g: Tensor, window: Window) -> Tensor:
    """The Gram form; examples where it cancels are unfolded instead."""
    one = (x.shape[1] * x.shape[2]) ** 2 * x.element_size()
    step = max(1, GRAM_BYTES // one)
    parts, largest = [], []
    for i in range(0, len(x), step):
        total, bound = _gram_chunk(x[i : i + step], g[i : i + step], window)
        parts.append(total)
        largest.append(bound)
    totals = torch.cat(parts)
    doubtful = (totals < torch.cat(largest) * (GRAM_TRUST / (g.shape[1] * g.shape[2]))).nonzero().flatten()
    if doubtful.numel():
        totals[doubtful] = _unfolded(x[doubtful], g[doubtful], window)
    return totals


def _gram_chunk(x: Tensor, g: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """The sums, and the largest that they could be had nothing cancelled."""
    n, h, w, _ = x.shape
    h_out, w_out = g.shape[1:3]
    flat, grads = x.reshape(n, h * w, -1), g.reshape(n, h_out * w_out, -1)
    gram = torch.bmm(flat, flat.transpose(1, 2))
    under = gram.view(n, h, w, h, w)
    down = under.new_zeros(n, h_out, w, h_out, w)
    for tap in range(window.kernel[0]):
        to, by = window.rows(0, tap, h, h_out)
        down[:, to, :, to] += under[:, by, :, by]
    across = under.new_zeros(n, h_out, w_out, h_out, w_out)
    for tap in range(window.kernel[1]):
        to, by = window.rows(1, tap, w, w_out)
        across[:, :, to, :, to] += down[:, :, by, :, by]
    pairs = across.view(n, h_out * w_out, h_out * w_out)
    between = half_gram(grads)
    bound = pairs.diagonal(dim1=1, dim2=2).sum(1) * trace(between)
    return paired(matching(pairs, between), between), bound
