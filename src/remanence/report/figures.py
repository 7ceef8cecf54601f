"""The figures: plain numbers in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from remanence.report.drawing import SERIES, human, look, new_figure


def time_to_unlearn_figure(
    bands: Sequence[Mapping[str, Any]], metrics: Mapping[str, str], limit: int
) -> Figure:
    """Mean time to unlearn of each band, a dot a seed; a hollow triangle where a seed did not get there in time.

    Args:
        bands: the `bands` of a results document.
        metrics: which of their metrics to show, with their titles.
        limit: the number of epochs after which a run was given up.
    """
    with look():
        figure = new_figure(7.0, 3.9)
        axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for panel, (metric, title) in zip(axes, metrics.items(), strict=True):
            _draw_times(panel, [band["epochs_to_unlearn"][metric] for band in bands], limit)
            labels = [f"{band['name']}\n{human(band['mean_privacy_loss'])}" for band in bands]
            panel.set_xticks(range(len(bands)), labels, fontsize=8, rotation=30, ha="right")
            panel.set_title(title, fontsize=11)
        axes[0].set_ylabel("epochs to unlearn")
        figure.supxlabel("forget set, with its mean privacy loss", fontsize=10)
        return figure


def _draw_times(axes: Axes, summaries: Sequence[Mapping[str, Any]], limit: int) -> None:
    for x, summary in enumerate(summaries):
        colour = SERIES[x]
        axes.bar(x, summary["mean"], color=colour, alpha=0.35, width=0.7)
        _draw_interval(axes, x, summary, limit, colour)
        for offset, each in zip(_spread(len(summary["each"])), summary["each"], strict=True):
            face = colour if each["reached"] else "white"
            marker = "o" if each["reached"] else "^"
            axes.plot(x + offset, each["epochs"], marker, mfc=face, mec=colour, ms=6, clip_on=False, zorder=4)
    axes.set_ylim(0, limit * 1.04)
    if any(summary["reached"] < summary["seeds"] for summary in summaries):
        axes.axhline(limit, color="#888", lw=1, ls=":")
        hollow = Line2D(
            [], [], marker="^", mfc="white", mec="#555", ls="", label=f"not within {limit} epochs"
        )
        axes.legend(handles=[hollow], loc="upper left", fontsize=8, bbox_to_anchor=(0, 0.97))


def _draw_interval(axes: Axes, x: int, summary: Mapping[str, Any], limit: int, colour: str) -> None:
    """The interval of the mean, up to the limit where it is open; nothing for a single seed."""
    if summary["interval"] is not None:
        low, high = summary["interval"]
        reach = [[summary["mean"] - low], [min(limit if high is None else high, limit) - summary["mean"]]]
        axes.errorbar(x, summary["mean"], reach, color=colour, capsize=4, lw=1.5)


def interval_text(interval: Sequence[float | None] | None) -> str:
    """An interval of epochs in words: `(1.5 to 8.0)`, `(from 20.0)` when it is open, empty when there is none."""
    if interval is None:
        return ""
    low, high = interval
    return f"(from {low:.1f})" if high is None else f"({low:.1f} to {high:.1f})"


def _spread(n: int) -> NDArray[np.float64]:
    return np.linspace(-0.18, 0.18, n) if n > 1 else np.zeros(1)


def unlearning_curves_figure(
    bands: Sequence[Mapping[str, Any]], metric: str, title: str, tolerance: float
) -> Figure:
    """One panel a band: the metric over epochs of unlearning, against the oracles' mean ± tolerance."""
    with look():
        figure = new_figure(7.0, 2.6)
        axes = figure.subplots(1, len(bands), sharey=True)
        for panel, band, colour in zip(axes, bands, SERIES, strict=True):
            curves = np.asarray(band["curves"][metric])
            epochs = np.arange(curves.shape[1])
            oracle = band["oracle"][metric]["mean"]
            panel.axhspan(
                100 * (oracle - tolerance), 100 * (oracle + tolerance), color="#999", alpha=0.25, lw=0
            )
            panel.axhline(100 * oracle, color="#555", ls="--", lw=1)
            for curve in curves:
                panel.plot(epochs, 100 * curve, color=colour, alpha=0.35, lw=1)
            panel.plot(epochs, 100 * curves.mean(axis=0), color=colour, lw=2)
            panel.set_title(band["name"], fontsize=9)
            panel.set_ylim(-3, 103)
        axes[0].set_ylabel(title)
        figure.supxlabel(
            "epochs of fine-tuning without the forget set (dashed: never trained on it)", fontsize=9
        )
        return figure


def proxies_figure(
    losses: NDArray[np.float64],
    proxies: Mapping[str, NDArray[np.float64]],
    agreement: Mapping[str, float],
    bins: int = 30,
) -> Figure:
    """Each proxy, over its largest value, averaged in bins of equally many examples along the privacy loss."""
    with look():
        figure = new_figure(7.0, 3.8)
        axes = figure.subplots()
        groups = np.array_split(np.argsort(losses, kind="stable"), min(bins, len(losses)))
        centres = [losses[group].mean() for group in groups]
        for (name, values), colour, marker in zip(
            proxies.items(), cycle(SERIES), cycle("osD^v"), strict=False
        ):
            scaled = values / values.max() if values.max() > 0 else values
            known = f"ρ = {agreement[name]:.2f}" if name in agreement else "ρ undefined"
            label = f"{name.replace('_', ' ')} ({known})"
            axes.plot(
                centres,
                [scaled[group].mean() for group in groups],
                marker + "-",
                ms=4,
                lw=1,
                c=colour,
                label=label,
            )
        axes.set_xscale("log")
        axes.set_xlabel("privacy loss (mean of a bin)")
        axes.set_ylabel("proxy, relative to its largest value")
        axes.legend(fontsize=9)
        return figure
