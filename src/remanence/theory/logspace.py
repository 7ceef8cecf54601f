"""Sums and means in log space, for numbers beyond the range of floats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def softplus(values: Floats) -> Floats:
    """ln(1 + e^v) without overflow, and to full relative precision for very negative v."""
    with np.errstate(under="ignore"):
        return np.maximum(values, 0) + np.log1p(np.exp(-np.abs(values)))


def log_mean_exp(values: Floats) -> Floats:
    """ln of the mean of e^v over the first axis; infinite values give an infinite mean, never NaN."""
    if len(values) == 1:
        return np.asarray(values[0])
    top = values.max(axis=0)
    anchor = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        return np.asarray(anchor + np.log(np.exp(values - anchor).mean(axis=0)))
