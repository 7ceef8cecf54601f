"""Plots of traces, scores, audits and forecasts on matplotlib axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

from remanence.display.figure_style import SERIES, look, new_figure, picture_png, picture_uri

Numbers = NDArray[np.floating[Any]]
_BINS = 40
_DRAWABLE = 1e200
"""Larger values overflow in matplotlib's ticks and are treated as infinite."""


def on_axes(draw: Callable[[Axes], None], axes: Axes | None) -> Axes:
    """Draw on the caller's axes, or on new pyplot axes, which a notebook shows."""
    if axes is not None:
        draw(axes)
        return axes
    with look():
        _, new = pyplot.subplots(figsize=(6.4, 3.6))
        draw(new)
    return new


def drawn_png(draw: Callable[[Axes], None]) -> bytes:
    """The plot as PNG bytes, without pyplot."""
    with look():
        figure = new_figure(5.2, 2.8)
        draw(figure.subplots())
        return picture_png(figure)


def drawn(draw: Callable[[Axes], None]) -> str:
    """The plot as a data: URI."""
    return picture_uri(drawn_png(draw))


def draw_norms(axes: Axes, steps: NDArray[np.int64], norms: Numbers, named: Mapping[str, Numbers]) -> None:
    """Quantiles of all examples' norms over training, and the norms of some examples by name."""
    low, median, high = np.quantile(norms.astype(np.float64), (0.05, 0.5, 0.95), axis=1)
    axes.fill_between(steps, low, high, color=SERIES[0], alpha=0.2, lw=0, label="9 of 10 examples")
    axes.plot(steps, median, color=SERIES[0], lw=2, label="median")
    axes.plot(steps, norms.max(axis=1), color=SERIES[4], lw=1, ls=":", label="largest")
    for (name, values), color in zip(named.items(), _colors(len(named)), strict=True):
        # a leading underscore would hide the name from the legend, a dollar would start a formula
        axes.plot(steps, values, color=color, lw=1.2, marker=".", label="\u200b" + name.replace("$", r"\$"))
    if (norms > 0).all() and norms.max() > 50 * norms.min():
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("gradient norm")
    axes.legend(fontsize=8)


def draw_measurements(axes: Axes, curves: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Metrics between 0 and 1 over unlearning steps, one line per metric."""
    for (name, points), color in zip(curves.items(), cycle(SERIES), strict=False):
        axes.plot(*zip(*points, strict=True), color=color, lw=1.4, label=name.replace("_", " "))
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("step")
    axes.legend(fontsize=8)


def draw_scores(axes: Axes, name: str, values: NDArray[np.float64]) -> None:
    """Histogram of scores, with a logarithmic axis if they span orders of magnitude."""
    finite = values[np.abs(values) < _DRAWABLE]
    if finite.size and finite.min() > 0 and finite.max() > 50 * finite.min():
        edges: Any = np.geomspace(finite.min(), finite.max(), _BINS + 1)
        axes.set_xscale("log")
    else:
        edges = _BINS
    axes.hist(finite, bins=edges, color=SERIES[0])
    axes.set_xlabel(name.replace("_", " ").replace("$", r"\$"))
    axes.set_ylabel("examples")
    if finite.size < values.size:
        axes.set_title(f"{values.size - finite.size} infinite or NaN values not shown", fontsize=9)


def draw_distances(axes: Axes, names: Sequence[str], distances: Sequence[float]) -> None:
    """Distance of each metric from the oracles' mean, in tolerances; the band is within tolerance."""
    rows = np.arange(len(names))[::-1]
    axes.axvspan(-1, 1, color="#999999", alpha=0.25, lw=0)
    axes.axvline(0, color="#555555", lw=1, ls="--")
    colors = [SERIES[0] if abs(distance) <= 1 + 1e-9 else SERIES[4] for distance in distances]
    axes.scatter(distances, rows, c=colors, zorder=3)
    axes.set_yticks(rows, list(names))
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_xlabel("distance from the oracles, in tolerances")


def draw_forecast(
    axes: Axes, steps: float, low: float, high: float, retraining: float, coverage: float
) -> None:
    """The expected steps with their interval, compared with retraining; an unbounded interval ends in an arrow."""
    end = high if np.isfinite(high) else 1.25 * max(retraining, steps, low, 1.0)
    axes.plot([low, end], [0, 0], color=SERIES[0], lw=6, alpha=0.35, label=f"{coverage:.0%} interval")
    if not np.isfinite(high):
        axes.plot(end, 0, ">", color=SERIES[0], ms=10, label="no upper bound known")
    axes.plot(steps, 0, "o", color=SERIES[0], ms=9, label="expected")
    axes.axvline(retraining, color=SERIES[4], ls="--", lw=1.2, label="retraining")
    axes.set_yticks([])
    axes.set_ylim(-1, 2.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("steps to unlearn")
    # opaque, so that the line of retraining does not cross the text
    axes.legend(fontsize=8, loc="upper right", frameon=True, framealpha=1, edgecolor="none")


def _colors(n: int) -> list[Any]:
    return [SERIES[3 - i % 3] for i in range(n)]
