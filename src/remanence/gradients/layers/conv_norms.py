"""Squared norms of a convolution's per-example weight gradients, in two exact forms, channels last.

The gradient of the tap (a, b) is Σₜ gₜ x_{t+(a,b)}ᵀ over output positions t. Either it is built, by batched
products with the input (unfolded only where strides require it), or only its norm is: Σ over pairs of positions
of (g·g') times the inner products of the inputs under them, which are diagonal shifts of one Gram matrix of the
raw input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.gradients.layers.gram_blocks import GRAM_TRUST, blocks_like, product_sum, trace, upper_gram
from remanence.machine.norm_constants import norm_constants


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
        return gram_norms(x, g, window)
    return built_norms(x, g, window)


def weight_squared_norms_and_sum(x: Tensor, g: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """The squared norms, and the batch's weight gradient [p, c, kernel height, kernel width]."""
    (height, width), c, p = window.kernel, x.shape[3], g.shape[3]
    blocks = height if needs_no_unfolding(window, c) else 1
    total = x.new_zeros(blocks, p, height // blocks * width * c)
    norms = built_norms(x, g, window, total)
    if blocks > 1:
        return norms, total.view(height, p, width, c).permute(1, 3, 0, 2)
    return norms, total.view(p, height, width, c).permute(0, 3, 1, 2)


def prefers_gram(sides_in: Sequence[int], sides_out: Sequence[int], c: int, p: int, window: Window) -> bool:
    """Whether the Gram form takes fewer multiply-adds."""
    t_in, t_out = sides_in[0] * sides_in[1], sides_out[0] * sides_out[1]
    taps = window.kernel[0] * window.kernel[1]
    return t_in**2 * (c + norm_constants().shift_work) + t_out**2 * p < taps * t_out * c * p


def built_norms(x: Tensor, g: Tensor, window: Window, total: Tensor | None = None) -> Tensor:
    """Build gradients in chunks, add them to `total` [blocks, p, rest] if given, and square them."""
    build, one = (
        (_built_from_strides, _strides_numel)
        if needs_no_unfolding(window, x.shape[3])
        else (_built_from_patches, _patches_numel)
    )
    most = max(1, norm_constants().built_bytes // (one(x, g, window) * x.element_size()))
    step = -(-len(x) // -(-len(x) // most))  # chunks of one size
    parts = []
    for i in range(0, len(x), step):
        gradients = build(x[i : i + step], g[i : i + step], window)
        if total is not None:
            total += gradients.sum(1)
        parts.append(gradients.mul_(gradients).sum((0, 2, 3)))
    return torch.cat(parts)


def needs_no_unfolding(window: Window, c: int) -> bool:
    """Whether the input need not be unfolded: stride 1, and the taps of a row lie side by side.

    With very few channels the products would be too narrow to be efficient.
    """
    return (
        window.stride == (1, 1)
        and window.dilation[1] == 1
        and window.kernel[1] * c >= norm_constants().narrow
    )


def _built_from_strides(x: Tensor, g: Tensor, window: Window) -> Tensor:
    """[kernel height, n, p, kernel width · c] from the input itself.

    On rows of one length, those of the padded input, the inputs under output position t begin t positions after
    the tap's own shift, and those of a row of taps lie side by side. Read as a matrix that begins at each
    kernel-width-th position, the input is its own unfolding; as many such products, each one position further,
    cover all positions. Gradients are zero where a row of output is shorter than a row of input.
    """
    (height, taps), (n, rows, columns, p), c = window.kernel, g.shape, x.shape[3]
    x = _padded(x, window)
    image, width = x.stride(0), x.shape[2]
    g = F.pad(g, (0, 0, 0, width - columns)).reshape(n, rows * width, p)
    last = (rows - 1) * width + columns - 1
    built = x.new_empty(height, n, p, taps * c)
    for phase in range(min(taps, last + 1)):
        count = (last - phase) // taps + 1
        grads = g[:, phase : last + 1 : taps].transpose(1, 2)
        for tap in range(height):
            first = (tap * window.dilation[0] * width + phase) * c
            inputs = x.as_strided((n, count, taps * c), (image, taps * c, 1), x.storage_offset() + first)
            if phase == 0:
                torch.bmm(grads, inputs, out=built[tap])
            else:
                built[tap].baddbmm_(grads, inputs)
    return built


def _strides_numel(x: Tensor, g: Tensor, window: Window) -> int:
    """Numbers in memory per example: its padded input and output gradient, and the weight gradient."""
    height, width = x.shape[1] + 2 * window.padding[0], x.shape[2] + 2 * window.padding[1]
    taps = window.kernel[0] * window.kernel[1]
    return height * width * x.shape[3] + g.shape[1] * width * g.shape[3] + taps * x.shape[3] * g.shape[3]


def _built_from_patches(x: Tensor, g: Tensor, window: Window) -> Tensor:
    """[1, n, p, kernel height · kernel width · c] from the unfolded input."""
    if window.stride[1] == 1 and g.shape[2] > window.kernel[1] * x.shape[3]:
        return _built_from_rows(x, g, window)
    x = _padded(x, window)
    image, row, column, channel = x.stride()
    (step_h, step_w), (gap_h, gap_w) = window.stride, window.dilation
    shape = (x.shape[0], g.shape[1], g.shape[2], *window.kernel, x.shape[3])
    strides = (image, row * step_h, column * step_w, row * gap_h, column * gap_w, channel)
    patches = x.as_strided(shape, strides).reshape(x.shape[0], g.shape[1] * g.shape[2], -1)
    return torch.bmm(g.flatten(1, 2).transpose(1, 2), patches).unsqueeze(0)


def _built_from_rows(x: Tensor, g: Tensor, window: Window) -> Tensor:
    """The same with channels first: for few channels, unfolding copies whole rows of the image, not a few numbers."""
    x = _padded(x, window).permute(0, 3, 1, 2).contiguous()
    image, channel, row, column = x.stride()
    (step_h, step_w), (gap_h, gap_w) = window.stride, window.dilation
    shape = (x.shape[0], *window.kernel, x.shape[1], g.shape[1], g.shape[2])
    strides = (image, row * gap_h, column * gap_w, channel, row * step_h, column * step_w)
    patches = x.as_strided(shape, strides).reshape(x.shape[0], -1, g.shape[1] * g.shape[2])
    return torch.bmm(patches, g.flatten(1, 2)).transpose(1, 2).unsqueeze(0)


def _patches_numel(x: Tensor, g: Tensor, window: Window) -> int:
    """Numbers in memory per example: twice its unfolded input, which is read right after it was written."""
    return 2 * g.shape[1] * g.shape[2] * window.kernel[0] * window.kernel[1] * x.shape[3]


def _padded(x: Tensor, window: Window) -> Tensor:
    (pad_h, pad_w) = window.padding
    return F.pad(x, (0, 0, pad_w, pad_w, pad_h, pad_h)).contiguous()


def gram_norms(x: Tensor, g: Tensor, window: Window) -> Tensor:
    """The Gram form; where it cancels, the gradient is built."""
    one = (x.shape[1] * x.shape[2]) ** 2 * x.element_size()
    step = max(1, norm_constants().gram_bytes // one)
    parts, largest = [], []
    for i in range(0, len(x), step):
        total, bound = _gram_chunk(x[i : i + step], g[i : i + step], window)
        parts.append(total)
        largest.append(bound)
    totals = torch.cat(parts)
    doubtful = (totals < torch.cat(largest) * (GRAM_TRUST / (g.shape[1] * g.shape[2]))).nonzero().flatten()
    if doubtful.numel():
        totals[doubtful] = built_norms(x[doubtful], g[doubtful], window)
    return totals


def _gram_chunk(x: Tensor, g: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """The sums, and their largest possible values."""
    n, h, w, _ = x.shape
    h_out, w_out = g.shape[1:3]
    flat, grads = x.reshape(n, h * w, -1), g.reshape(n, h_out * w_out, -1)
    gram = torch.bmm(flat, flat.transpose(1, 2))
    under = gram.view(n, h, w, h, w)
    down = under.new_zeros(n, h_out, w, h_out, w)
    for tap in range(window.kernel[0]):
        to, by = window.rows(0, tap, h, h_out)
        down[:, to, :, to].add_(under[:, by, :, by])  # `+=` would copy the view onto itself
    across = under.new_zeros(n, h_out, w_out, h_out, w_out)
    for tap in range(window.kernel[1]):
        to, by = window.rows(1, tap, w, w_out)
        across[:, :, to, :, to].add_(down[:, :, by, :, by])
    pairs = across.view(n, h_out * w_out, h_out * w_out)
    between = upper_gram(grads)
    bound = pairs.diagonal(dim1=1, dim2=2).sum(1) * trace(between)
    return product_sum(blocks_like(pairs, between), between), bound
