"""Squared norms of a convolution's per-example weight gradients, in two exact forms, channels last.

The gradient of the tap (a, b) is Σₜ gₜ x_{t+(a,b)}ᵀ over output positions t. Either it is built, or only its norm is:
Σ over pairs of positions of (g·g') times the inner products of the inputs under them, which are diagonal shifts of one
Gram matrix of the raw input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from remanence.gradients.layers.conv_gradients import Window, choose_form
from remanence.gradients.layers.gram_blocks import GRAM_TRUST, blocks_like, product_sum, trace, upper_gram
from remanence.machine.norm_constants import norm_constants


def weight_squared_norms(x: Tensor, g: Tensor, window: Window) -> Tensor:
    """‖gradient‖² of each example for inputs [n, h, w, c] and output gradients [n, h', w', p]."""
    if prefers_gram(x.shape[1:3], g.shape[1:3], x.shape[3], g.shape[3], window):
        return gram_norms(x, g, window)
    return built_norms(x, g, window)


def weight_squared_norms_and_sum(x: Tensor, g: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """The squared norms, and the batch's weight gradient [p, c, kernel height, kernel width]."""
    form = choose_form(x, g, window)
    total = x.new_zeros(form.shape(window, x.shape[3], g.shape[3]))
    norms = built_norms(x, g, window, total)
    return norms, form.to_weight(total)


def prefers_gram(sides_in: Sequence[int], sides_out: Sequence[int], c: int, p: int, window: Window) -> bool:
    """Whether the Gram form takes fewer multiply-adds."""
    t_in, t_out = sides_in[0] * sides_in[1], sides_out[0] * sides_out[1]
    taps = window.kernel[0] * window.kernel[1]
    return t_in**2 * (c + norm_constants().shift_work) + t_out**2 * p < taps * t_out * c * p


def built_norms(x: Tensor, g: Tensor, window: Window, total: Tensor | None = None) -> Tensor:
    """Build gradients in chunks, add them to `total`, in the shape of their form, if given, and square them."""
    form = choose_form(x, g, window)
    most = max(1, norm_constants().built_bytes // (form.numel(x, g, window) * x.element_size()))
    step = -(-len(x) // -(-len(x) // most))  # chunks of one size
    parts = []
    for i in range(0, len(x), step):
        gradients = form.build(x[i : i + step], g[i : i + step], window)
        if total is not None:
            total += gradients.sum(1).view_as(total)
        parts.append(gradients.mul_(gradients).sum((0, 2, 3)))
    return torch.cat(parts)


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
    down = _shifted_sum(under, window, 1, h_out)
    across = _shifted_sum(down, window, 2, w_out)
    pairs = across.view(n, h_out * w_out, h_out * w_out)
    between = upper_gram(grads)
    bound = pairs.diagonal(dim1=1, dim2=2).sum(1) * trace(between)
    return product_sum(blocks_like(pairs, between), between), bound


def _shifted_sum(products: Tensor, window: Window, dim: int, size_out: int) -> Tensor:
    """Sum over the taps of an axis: entries of [n, h, w, h, w] moved along dimensions `dim` and `dim + 2`."""
    axis, size_in = dim - 1, products.shape[dim]
    taps = [window.rows(axis, tap, size_in, size_out) for tap in range(window.kernel[axis])]
    taps.sort(
        key=lambda tap: tap[0] != slice(0, size_out)
    )  # one that reaches all outputs first, if there is one
    shape = list(products.shape)
    shape[dim] = shape[dim + 2] = size_out
    total = products.new_empty(shape)
    for number, (to, by) in enumerate(taps):
        part = _both(products, dim, by)
        if number == 0 and to == slice(0, size_out):
            total.copy_(part)
            continue
        if number == 0:
            total.zero_()
        _both(total, dim, to).add_(part)  # `+=` would copy the view onto itself
    return total


def _both(products: Tensor, dim: int, chosen: slice) -> Tensor:
    """A slice along both dimensions of an axis."""
    index = [slice(None)] * products.dim()
    index[dim] = index[dim + 2] = chosen
    return products[tuple(index)]
