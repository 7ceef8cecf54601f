"""A convolution's per-example weight gradients, channels last, in the form that is the fastest for its sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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


@dataclass(frozen=True)
class Form:
    """A way of building gradients.

    Args:
        build: gradients [blocks, n, p, rest] from inputs [n, h, w, c] and output gradients [n, h', w', p].
        numel: numbers in memory per example while it builds.
        order: dimensions of one gradient as it is built: `a` and `b` those of the kernel, `p` outputs, `c` inputs.
    """

    build: Callable[[Tensor, Tensor, Window], Tensor]
    numel: Callable[[Tensor, Tensor, Window], int]
    order: str

    def shape(self, window: Window, c: int, p: int) -> tuple[int, ...]:
        """The dimensions of one gradient as it is built."""
        sizes = {"a": window.kernel[0], "b": window.kernel[1], "c": c, "p": p}
        return tuple(sizes[name] for name in self.order)

    def to_weight(self, gradient: Tensor) -> Tensor:
        """A gradient of that shape as a weight [p, c, kernel height, kernel width]."""
        return gradient.permute([self.order.index(name) for name in "pcab"])


def choose_form(x: Tensor, g: Tensor, window: Window) -> Form:
    """The form for inputs [n, h, w, c] and output gradients [n, h', w', p], by the constants of this machine."""
    c, p = x.shape[3], g.shape[3]
    if fills_blocks(c, p) and _has_grouped_kernels(x):
        return GROUPED
    if needs_no_unfolding(window, c):
        return STRIDES
    if window.stride[1] == 1 and g.shape[2] > window.kernel[1] * c:
        return ROWS
    return PATCHES


def fills_blocks(c: int, p: int) -> bool:
    """Whether the channels are whole blocks of those that oneDNN computes together."""
    block = norm_constants().channel_block
    return c % block == 0 and p % block == 0


def _has_grouped_kernels(x: Tensor) -> bool:
    """Whether oneDNN has vectorized kernels for grouped convolutions: in float32, and on these processors."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(onednn) and torch.backends.cpu.get_cpu_capability().startswith("AVX")


def needs_no_unfolding(window: Window, c: int) -> bool:
    """Whether the input need not be unfolded: stride 1, and the taps of a row lie side by side.

    With very few channels the products would be too narrow to be efficient.
    """
    return (
        window.stride == (1, 1)
        and window.dilation[1] == 1
        and window.kernel[1] * c >= norm_constants().narrow
    )


def grouped_weight_gradients(
    x: Tensor,
    g: Tensor,
    weight: Tensor,
    geometry: Sequence[Sequence[int]],
    *,
    groups: int = 1,
    transposed: bool = False,
    output_padding: Sequence[int] = (0, 0),
) -> Tensor:
    """[n, *weight shape] by one grouped convolution, the examples as groups.

    Args:
        x: inputs [n, c, ...].
        g: output gradients [n, p, ...].
        weight: for its shape.
        geometry: stride, padding and dilation.
        groups: those of the convolution itself.
        transposed: for a transposed convolution.
        output_padding: of a transposed convolution.
    """
    n = len(x)
    stride, padding, dilation = geometry
    wide = (t.reshape(1, -1, *t.shape[2:]) for t in (g, x))
    shape = n * weight.shape[0], *weight.shape[1:]
    gradients: Tensor = torch.ops.aten.convolution_backward(
        *wide,
        x.new_empty(shape),
        None,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        n * groups,
        [False, True, False],
    )[1]
    return gradients.view(n, *weight.shape)


def _built_by_groups(x: Tensor, g: Tensor, window: Window) -> Tensor:
    """[1, n, p, c · kernel height · kernel width]."""
    x, g = x.permute(0, 3, 1, 2), g.permute(0, 3, 1, 2)
    weight = x.new_empty(1).expand(g.shape[1], x.shape[1], *window.kernel)
    geometry = window.stride, window.padding, window.dilation
    return grouped_weight_gradients(x, g, weight, geometry).flatten(2).unsqueeze(0)


def _groups_numel(x: Tensor, g: Tensor, window: Window) -> int:
    """Numbers in memory per example: its input and output gradient, channels first, and the weight gradient."""
    taps = window.kernel[0] * window.kernel[1]
    return x[0].numel() + g[0].numel() + taps * x.shape[3] * g.shape[3]


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


GROUPED = Form(_built_by_groups, _groups_numel, "pcab")
STRIDES = Form(_built_from_strides, _strides_numel, "apbc")
PATCHES = Form(_built_from_patches, _patches_numel, "pabc")
ROWS = Form(_built_from_rows, _patches_numel, "pabc")
