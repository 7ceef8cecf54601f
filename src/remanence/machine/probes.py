"""Small computations that show what torch supports, run as a script in a separate process, which they may crash.

`python probes.py NAME ...` runs the named probes in order. It prints one line per probe: its name, a tab, and
nothing (it works), `absent` (there is no such device) or the reason why it does not work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

HALVES = ("bfloat16", "float16")
HALF_PROBES = tuple(f"{dtype} {task}" for dtype in HALVES for task in ("matmul", "conv"))
DEVICE_PROBES = ("cpu", "cuda", "mps", "xpu")
ABSENT, WRONG = "absent", "the result is wrong"

_CLOSE = 0.05
"""Largest relative error of a correct result in half precision; rounding errors are below 0.01."""
_MATMUL_SIZES = ((28, 8, 32), (1, 64, 10), (64, 128, 256))
"""Rows, inputs and outputs. The first product raises SIGILL on machines that advertise AMX but lack it."""
_CONV_SIZES = ((4, 1, 8, 8), (2, 16, 16, 16))


def matmul_works(dtype: torch.dtype) -> bool:
    return all(
        _matches_float32(F.linear, torch.randn(n_rows, n_in), torch.randn(n_out, n_in), dtype)
        for n_rows, n_in, n_out in _MATMUL_SIZES
    )


def conv_works(dtype: torch.dtype) -> bool:
    return all(
        _matches_float32(F.conv2d, torch.randn(shape), torch.randn(8, shape[1], 3, 3), dtype)
        for shape in _CONV_SIZES
    )


def _matches_float32(
    operation: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, dtype: torch.dtype
) -> bool:
    """Compare the output and both gradients with and without autocast."""
    results = []
    for enabled in (True, False):
        inputs = [tensor.clone().requires_grad_() for tensor in (x, weight)]
        with torch.autocast("cpu", dtype, enabled=enabled):
            output = operation(*inputs).float()
        results.append((output, *torch.autograd.grad(output.square().mean(), inputs)))
    return all(_is_close(half, full) for half, full in zip(*results, strict=True))


def probe(name: str) -> str:
    """Run one probe; return the text to print after its name."""
    torch.manual_seed(0)
    if name in DEVICE_PROBES:
        return _probe_device(name)
    dtype, task = name.split()
    works = {"matmul": matmul_works, "conv": conv_works}[task](getattr(torch, dtype))
    return "" if works else WRONG


def _probe_device(name: str) -> str:
    if name != "cpu" and not getattr(torch, name).is_available():
        return ABSENT
    x = torch.randn(16, 16)
    actual = (x.to(name) @ x.to(name)).cpu()
    expected = (x.double() @ x.double()).float()
    return "" if _is_close(actual, expected) else WRONG


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    return bool((actual - expected).norm() <= _CLOSE * expected.norm())


if __name__ == "__main__":
    for probe_name in sys.argv[1:]:
        try:
            answer = probe(probe_name)
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            answer = " ".join(str(error).split()) or type(error).__name__
        print(f"{probe_name}\t{answer}", flush=True)  # noqa: T201 - this is the script's output
