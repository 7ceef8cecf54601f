"""The pictures: what a trace, scores and an audit draw on matplotlib axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

from remanence.display.look import SERIES, look, new_figure, picture_png, picture_uri

Numbers = NDArray[np.floating[Any]]
_BINS = 40
_DRAWABLE = 1e200
"""Beyond this matplotlib's own ticks overflow; as good as infinite."""


def on_axes(draw: Callable[[Axes], None], axes: Axes | None) -> Axes:
    """Draw on the caller's axes, or on new ones that pyplot (so a notebook too) will show."""
    if axes is not None:
        draw(axes)
        return axes
    with look():
        _, new = pyplot.subplots(figsize=(6.4, 3.6))
        draw(new)
    return new


def drawn_png(draw: Callable[[Axes], None]) -> bytes:
    """The same as a PNG; pyplot is left alone."""
    with look():
        figure = new_figure(5.2, 2.8)
        draw(figure.subplots())
        return picture_png(figure)


def drawn(draw: Callable[[Axes], None]) -> str:
    """That as a data: address."""
    return picture_uri(drawn_png(draw))


def draw_norms(axes: Axes, steps: NDArray[np.int64], norms: Numbers, named: Mapping[str, Numbers]) -> None:
    """The spread of all examples over training, and some examples by name."""
    low, median, high = np.quantile(norms.astype(np.float64), (0.05, 0.5, 0.95), axis=1)
    axes.fill_between(steps, low, high, color=SERIES[0], alpha=0.2, lw=0, label="9 of 10 examples")
    axes.plot(steps, median, color=SERIES[0], lw=2, label="median")
    axes.plot(steps, norms.max(axis=1), color=SERIES[4], lw=1, ls=":", label="largest")
    for (name, values), colour in zip(named.items(), _colours(len(named)), strict=True):
        # a name that begins with an underscore would be left out of the legend, dollars would start a formula
        axes.plot(steps, values, color=colour, lw=1.2, marker=".", label="\u200b" + name.replace("$", r"\$"))
    if (norms > 0).all() and norms.max() > 50 * norms.min():
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("gradient norm")
    axes.legend(fontsize=8)


def draw_measurements(axes: Axes, curves: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Shares that were measured on the way, one line each."""
    for (name, points), colour in zip(curves.items(), cycle(SERIES), strict=False):
        axes.plot(*zip(*points, strict=True), color=colour, lw=1.4, label=name.replace("_", " "))
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("step")
    axes.legend(fontsize=8)


def draw_scores(axes: Axes, name: str, values: NDArray[np.float64]) -> None:
    """How many examples have which score, on a logarithmic scale where they span it."""
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
        axes.set_title(f"{values.size - finite.size} infinite or no numbers: not drawn", fontsize=9)


def draw_distances(axes: Axes, names: Sequence[str], distances: Sequence[float]) -> None:
    """How far each metric is from the oracles' mean, in tolerances; inside the band is close."""
    places = np.arange(len(names))[::-1]
    axes.axvspan(-1, 1, color="#999999", alpha=0.25, lw=0)
    axes.axvline(0, color="#555555", lw=1, ls="--")
    colours = [SERIES[0] if abs(each) <= 1 + 1e-9 else SERIES[4] for each in distances]
    axes.scatter(distances, places, c=colours, zorder=3)
    axes.set_yticks(places, list(names))
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_xlabel("distance from the oracles, in tolerances")


def draw_forecast(
    axes: Axes, steps: float, low: float, high: float, retraining: float, coverage: float
) -> None:
    """The expected steps with their interval, beside what training anew takes; an open end is an arrow."""
    end = high if np.isfinite(high) else 1.25 * max(retraining, steps, low, 1.0)
    axes.plot([low, end], [0, 0], color=SERIES[0], lw=6, alpha=0.35, label=f"{coverage:.0%} interval")
    if not np.isfinite(high):
        axes.plot(end, 0, ">", color=SERIES[0], ms=10, label="no upper end known")
    axes.plot(steps, 0, "o", color=SERIES[0], ms=9, label="expected")
    axes.axvline(retraining, color=SERIES[4], ls="--", lw=1.2, label="training anew")
    axes.set_yticks([])
    axes.set_ylim(-1, 2.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("steps to unlearn")
    # over the line of training anew, wherever that is
    axes.legend(fontsize=8, loc="upper right", frameon=True, framealpha=1, edgecolor="none")


def _colours(n: int) -> list[Any]:
    return [SERIES[3 - i % 3] for i in range(n)]
