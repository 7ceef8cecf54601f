"""Straight lines in the frequency of a class, one per example, and how models differ from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Line = tuple[Floats, Floats, Floats]
"""[n] each: centre, value at the centre, slope."""
_RIDGE = 1.0
"""Weight of the common slope, in models: the slope through a few points of one example is unreliable."""


def fit_lines(values: Floats, frequencies: Floats, left_out: NDArray[np.bool_]) -> Line:
    """The line of each example in ln(frequency), over the models that left it out: centre, value there, slope.

    The slope of an example is shrunk towards the common slope of all examples when its points vary little.
    """
    weight = left_out.astype(np.float64)
    count = weight.sum(axis=0)
    centre, level = ((part * weight).sum(axis=0) / count for part in (frequencies, values))
    across = (frequencies - centre) * weight
    square, product = (across**2).sum(axis=0), (across * (values - level)).sum(axis=0)
    common = product.sum() / square.sum() if square.sum() > 0 else 0.0
    typical = square.sum() / len(square)
    slope = (product + _RIDGE * typical * common) / (square + _RIDGE * typical) if typical > 0 else 0 * square
    return centre, level, slope


def values_at(line: Line, rows: NDArray[np.int64], frequencies: Floats) -> Floats:
    centre, level, slope = (part[rows] for part in line)
    values: Floats = level + slope * (frequencies - centre)
    return values


def variance_parts(
    values: Floats, frequencies: Floats, left_out: NDArray[np.bool_], line: Line
) -> tuple[float, float]:
    """Variance of the shift of a model, common to all examples, and of the rest, independent between examples."""
    residual = residuals(values, frequencies, left_out, line)
    total = float((residual**2).sum() / left_out.sum())
    between = shift_variance(residual, left_out)
    return between, max(0.0, total - between)


def residuals(values: Floats, frequencies: Floats, left_out: NDArray[np.bool_], line: Line) -> Floats:
    """[M, n] differences from the lines, 0 where an example was not left out."""
    centre, level, slope = line
    count = left_out.sum(axis=0)
    residual = np.where(left_out, values - (level + slope * (frequencies - centre)), 0.0)
    scaled: Floats = residual * np.sqrt(
        count / (count - 1)
    )  # degrees of freedom: the mean was estimated from the same models
    return scaled


def shift_variance(residual: Floats, left_out: NDArray[np.bool_]) -> float:
    """Variance of the mean residual of a model, beyond what independent examples explain."""
    sizes = left_out.sum(axis=1)
    mean = residual.sum(axis=1) / np.maximum(sizes, 1)
    noise = (residual**2).sum() / max(int(left_out.sum()), 1) / np.maximum(sizes, 1)
    return max(0.0, float((mean**2 - noise)[sizes > 0].mean()))
