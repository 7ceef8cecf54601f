"""The exact log-moment at a fractional order, by integrating over the Gaussian."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from remanence.theory.logspace import softplus

Floats = NDArray[np.float64]

_POINTS = 1600
"""Points per window: the trapezoid rule converges exponentially on what is smooth and vanishes at both ends."""


def exact_log_moment(order: float, rate: float, ratios: Floats) -> Floats:
    """ln E_z (1 − q + q e^{ρz − ρ²/2})^a for a real a > 1 and q < 1, by the trapezoid rule.

    The integrand's mass lies around z = 0 and around z = aρ, each a few standard deviations wide. What is
    integrated is the remainder (1 + x)^a − 1 − ax, x = q(e^{ρz − ρ²/2} − 1), which is not negative and whose
    mean is A − 1 because x has mean 0: tiny moments keep their relative precision.
    """
    flat = ratios.reshape(-1)
    reach = np.sqrt(2 * (order * np.log(2) + 40))
    out = np.empty_like(flat)
    for i, ratio in enumerate(flat):
        peak = order * ratio
        windows = (
            [(-reach, peak + reach)] if peak <= 2 * reach else [(-reach, reach), (peak - reach, peak + reach)]
        )
        logs = [_log_window(order, rate, float(ratio), low, high) for low, high in windows]
        out[i] = softplus(np.asarray(np.logaddexp.reduce(logs)))
    return out.reshape(ratios.shape)


def _log_window(order: float, rate: float, ratio: float, low: float, high: float) -> float:
    z, step = np.linspace(low, high, _POINTS, retstep=True)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        exponent = ratio * (z - ratio / 2)
        log_base = np.logaddexp(np.log1p(-rate), np.log(rate) + exponent)
        logs = log_remainder(order, log_base, rate * np.expm1(exponent)) - z * z / 2
    return float(np.logaddexp.reduce(logs) + np.log(step) - 0.5 * np.log(2 * np.pi))


def log_remainder(order: float, log_base: Floats, x: Floats) -> Floats:
    """ln((1 + x)^a − 1 − ax) from ln(1 + x) and x, by whichever form keeps its digits."""
    growth = order * log_base
    direct = np.log(np.expm1(growth) - order * x)
    large = growth + np.log1p(-np.exp(-growth) - order * np.exp(np.log(x) - growth))
    series = np.ones_like(x)
    for k in range(12, 2, -1):
        series = 1 + series * x * (order - k + 1) / k
    tail = np.log(order * (order - 1) / 2) + 2 * np.log(np.abs(x)) + np.log(series)
    # beyond float range x is infinite while ln(1 + x) is not; the linear part is nothing beside the power
    large = np.where(np.isinf(x), growth, large)
    return np.asarray(np.where(np.abs(x) * order < 0.1, tail, np.where(growth > 30, large, direct)))
