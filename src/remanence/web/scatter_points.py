"""Points of the scatter plot of two scores, few enough for a browser."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 3000
"""Largest number of points; more would cover each other."""
_EXTREME = 150
"""Number of the largest and of the smallest examples by either score that are always drawn."""
_SEED = 8
Floats = NDArray[np.float64]


def drawn_places(x: Floats, y: Floats, *, most: int = MOST) -> NDArray[np.int64]:
    """Which examples are drawn: all that have finite scores, or the extremes and some of the rest by chance."""
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(known) <= most:
        return known
    order = [np.argsort(values[known], kind="stable") for values in (x, y)]
    ends = np.unique(
        np.concatenate([end for places in order for end in (places[:_EXTREME], places[-_EXTREME:])])
    )
    rest = np.setdiff1d(np.arange(len(known)), ends, assume_unique=True)
    chosen = np.random.default_rng(_SEED).choice(rest, most - len(ends), replace=False)
    together: NDArray[np.int64] = known[np.sort(np.concatenate([ends, chosen]))]
    return together


def points(x: Floats, y: Floats, labels: NDArray[np.int64], names: tuple[str, ...]) -> dict[str, Any]:
    """What the browser draws: values rounded to what can be seen, class numbers, and how each axis is scaled."""
    places = drawn_places(x, y)
    return {
        "x": _rounded(x[places]),
        "y": _rounded(y[places]),
        "label": labels[places].tolist(),
        "classes": list(names),
        "x_scale": _scale(x[places]),
        "y_scale": _scale(y[places]),
    }


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _scale(values: Floats) -> str:
    """Logarithmic where the values are positive and span more than a linear axis can tell apart."""
    if not len(values) or values.min() <= 0:
        return "linear"
    return (
        "log" if values.max() > 50 * np.median(values) or np.median(values) > 50 * values.min() else "linear"
    )
