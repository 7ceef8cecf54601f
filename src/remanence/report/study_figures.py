"""Figures of studies: plain numbers in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from remanence.report.drawing import SERIES, look, new_figure
from remanence.report.statistics import standard_deviation

_MARKERS = "osD^vP"
_HOLLOW = "target not reached"
_PANELS = 4
"""Panels side by side, at most."""


@dataclass(frozen=True)
class Point:
    """Times to unlearn one forget set.

    Args:
        loss: its mean privacy loss.
        median: over seeds, by Kaplan and Meier; None when it lies beyond the length of the runs.
        by_seed: the time of every seed, and whether it reached the target; seeds in the same order at every point.
    """

    loss: float
    median: float | None
    by_seed: Sequence[tuple[float, bool]]


@dataclass(frozen=True)
class Series:
    """One line of a figure; `limit` is the length of the runs."""

    name: str
    points: Sequence[Point]
    limit: float


@dataclass(frozen=True)
class Curve:
    """A metric while unlearning one forget set: one line per seed, and the oracles' mean."""

    name: str
    epochs: Sequence[float]
    lines: Sequence[Sequence[float]]
    oracle: float


def times_figure(series: Sequence[Series]) -> Figure:
    """Time to unlearn against mean privacy loss: one panel per series, one thin line per seed, the median bold."""
    with look():
        columns = min(len(series), _PANELS)
        rows = -(-len(series) // columns)
        figure = new_figure(max(4.2, 2.5 * columns + 0.5), 2.7 * rows + 0.5)
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for i, (panel, line) in enumerate(zip(panels, series, strict=False)):
            _times_panel(panel, line, SERIES[i % len(SERIES)])
        for unused in panels[len(series) :]:
            unused.set_axis_off()
        panels[0].set_ylim(bottom=0)
        handles = [
            Line2D([], [], color="#555", lw=0.8, marker="o", ms=3, alpha=0.6, label="one seed"),
            Line2D([], [], color="#555", lw=2.4, marker="o", label="median"),
        ]
        if any(not reached for line in series for point in line.points for _, reached in point.by_seed):
            handles.append(Line2D([], [], marker="o", mfc="white", mec="#555", ls="", label=_HOLLOW))
        figure.legend(
            handles=handles, fontsize=8, loc="outside upper center", ncols=len(handles), frameon=False
        )
        figure.supxlabel("mean privacy loss of the forget set", fontsize=10)
        figure.supylabel("epochs to unlearn", fontsize=10)
        return figure


def _times_panel(panel: Axes, line: Series, colour: str) -> None:
    losses = [point.loss for point in line.points]
    for seed in zip(*(point.by_seed for point in line.points), strict=False):
        panel.plot(losses, [value for value, _ in seed], color=colour, lw=0.8, alpha=0.35)
    for point in line.points:
        for value, reached in point.by_seed:
            panel.plot(
                point.loss, value, "o", mfc=colour if reached else "white", mec=colour, ms=4, alpha=0.55
            )
    medians = [line.limit if point.median is None else point.median for point in line.points]
    panel.plot(losses, medians, color=colour, lw=2.4, zorder=4)
    for point, median in zip(line.points, medians, strict=True):
        face = "white" if point.median is None else colour
        panel.plot(point.loss, median, "o", mfc=face, mec=colour, mew=2, ms=8, zorder=5)
    _log_axis(panel)
    panel.set_xlabel("")
    panel.set_title(line.name, fontsize=10)


def bars_figure(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[tuple[float, bool]]]]],
    groups: Sequence[str],
    quantity: str,
) -> Figure:
    """One panel per metric, one group of bars per size, one bar per score, one dot per seed."""
    with look():
        figure = new_figure(3.6 * len(panels) + 0.6, 3.9)
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for panel, (title, bars) in zip(axes, panels.items(), strict=True):
            width = 0.8 / len(bars)
            for i, (name, by_group) in enumerate(bars.items()):
                colour = SERIES[i % len(SERIES)]
                places = np.arange(len(groups)) + (i - (len(bars) - 1) / 2) * width
                means = [np.mean([value for value, _ in seeds]) for seeds in by_group]
                panel.bar(places, means, width * 0.9, color=colour, alpha=0.4, label=name.replace("_", " "))
                for place, seeds in zip(places, by_group, strict=True):
                    for value, reached in seeds:
                        face = colour if reached else "white"
                        panel.plot(place, value, "o", mfc=face, mec=colour, ms=4, zorder=4)
            panel.set_xticks(range(len(groups)), groups, fontsize=9)
            panel.set_title(title, fontsize=11)
        axes[0].set_ylabel(quantity)
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, fontsize=8, loc="outside upper center", ncols=len(names), frameon=False)
        figure.supxlabel("hollow: target not reached, so the bar is a lower bound", fontsize=9)
        return figure


def curves_figure(panels: Mapping[str, Sequence[Curve]]) -> Figure:
    """One panel per metric, one line per forget set (mean, shaded between the extremes), its oracles dashed."""
    with look():
        columns = 2 if len(panels) > 1 else 1
        rows = -(-len(panels) // columns)
        figure = new_figure(7.4, 2.7 * rows + 0.4)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, (title, curves) in zip(axes, panels.items(), strict=False):
            for curve, colour in zip(curves, SERIES, strict=False):
                if len(curve.lines):
                    lines = 100 * np.asarray(curve.lines)
                    panel.plot(curve.epochs, lines.mean(axis=0), color=colour, lw=1.6, label=curve.name)
                    panel.fill_between(
                        curve.epochs, lines.min(axis=0), lines.max(axis=0), color=colour, alpha=0.15, lw=0
                    )
                panel.axhline(100 * curve.oracle, color=colour, ls="--", lw=0.9, alpha=0.8)
            panel.set_title(title, fontsize=10)
        for unused in axes[len(panels) :]:
            unused.set_axis_off()
        axes[0].legend(fontsize=8)
        figure.supylabel("%", fontsize=10)
        figure.supxlabel("epochs of unlearning (dashed: oracles, never trained on the set)", fontsize=9)
        return figure


def lines_figure(lines: Mapping[str, Mapping[str, Sequence[float]]], quantity: str) -> Figure:
    """One line per name over the same few places, one dot per seed."""
    with look():
        figure = new_figure(6.4, 3.4)
        axes = figure.subplots()
        for i, (name, places) in enumerate(lines.items()):
            colour, marker = SERIES[(2 * i) % len(SERIES)], _MARKERS[i]
            means = [float(np.mean(values)) if values else np.nan for values in places.values()]
            axes.plot(range(len(places)), means, marker + "-", color=colour, label=name)
            for x, values in enumerate(places.values()):
                axes.plot([x] * len(values), values, marker, color=colour, ms=4, alpha=0.4)
            axes.set_xticks(range(len(places)), list(places), fontsize=9)
        lowest = min(
            (value for places in lines.values() for values in places.values() for value in values), default=1
        )
        axes.set_ylim(min(0.9, lowest - 0.05), 1.02)
        axes.set_ylabel(quantity)
        axes.set_xlabel("assumed σ of the two rankings compared")
        axes.legend(fontsize=9)
        return figure


def group_figure(losses: Sequence[float], forms: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """Group loss against mean privacy loss: one line per form, one standard deviation over estimates shaded."""
    with look():
        figure = new_figure(6.8, 4.0)
        axes = figure.subplots()
        for i, (name, estimates) in enumerate(forms.items()):
            known = [(loss, values) for loss, values in zip(losses, estimates, strict=True) if len(values)]
            if not known:
                continue
            places = [loss for loss, _ in known]
            means = np.array([np.mean(values) for _, values in known])
            spreads = np.array([standard_deviation(values) for _, values in known])
            colour, marker = SERIES[(2 * i) % len(SERIES)], _MARKERS[i]
            axes.plot(places, means, marker + "-", color=colour, label=name)
            low = np.maximum(means - spreads, means * 1e-3)
            axes.fill_between(places, low, means + spreads, color=colour, alpha=0.2, lw=0)
        _log_axis(axes)
        axes.set_yscale("log")
        axes.set_ylabel("group loss of the set")
        axes.legend(fontsize=9)
        return figure


def barriers_figure(
    losses: Sequence[float], subsets: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]
) -> Figure:
    """One panel per subset of the data: barriers before and after unlearning, and between oracles."""
    names = {"before": "before unlearning", "after": "after unlearning", "baseline": "between oracles"}
    with look():
        figure = new_figure(3.7 * len(subsets) + 0.8, 3.9)
        axes = figure.subplots(1, len(subsets), squeeze=False)[0]
        for panel, (subset, kinds) in zip(axes, subsets.items(), strict=True):
            for i, (kind, by_set) in enumerate(kinds.items()):
                if not any(by_set):  # a single oracle has none to be compared with
                    continue
                colour, marker = SERIES[(4 - 2 * i) % len(SERIES)], _MARKERS[i]
                means = [float(np.mean(values)) for values in by_set]
                spreads = [standard_deviation(values) for values in by_set]
                panel.errorbar(
                    losses, means, spreads, color=colour, marker=marker, capsize=3, lw=1.4, label=names[kind]
                )
            _log_axis(panel)
            panel.set_title(f"on the {subset} set", fontsize=11)
        axes[0].set_ylabel("loss barrier, nats")
        axes[0].legend(fontsize=8)
        return figure


def pictures_figure(rows: Mapping[str, Sequence[tuple[NDArray[np.floating[Any]], str]]]) -> Figure:
    """One row per name: pictures [height, width, channels] with their labels."""
    with look():
        columns = max(len(pictures) for pictures in rows.values())
        figure = new_figure(0.85 * columns, 1.25 * len(rows))
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for line, (name, pictures) in zip(axes, rows.items(), strict=True):
            for place in line:
                place.set_axis_off()
            for i, (place, (pixels, label)) in enumerate(zip(line, pictures, strict=False)):
                grey = pixels.shape[-1] == 1
                shown = pixels[..., 0] if grey else pixels
                place.imshow(np.clip(shown, 0, 1), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
                place.set_title(f"{name}\n{label}" if i == 0 else f"\n{label}", fontsize=7, loc="left")
        return figure


def predictors_figure(scores: Mapping[str, Sequence[Sequence[float]]], targets: Sequence[str]) -> Figure:
    """One panel per target, one row per score: the mean correlation as a line, one dot per seed."""
    with look():
        figure = new_figure(3.1 * len(targets) + 1.2, 0.34 * len(scores) + 1.2)
        panels = figure.subplots(1, len(targets), sharey=True, squeeze=False)[0]
        for place, (panel, target) in enumerate(zip(panels, targets, strict=True)):
            for row, by_target in enumerate(scores.values()):
                values = by_target[place]
                colour = SERIES[row % len(SERIES)]
                panel.plot(values, [row] * len(values), "o", color=colour, ms=4, alpha=0.5)
                if values:
                    panel.plot(float(np.mean(values)), row, "|", color=colour, ms=16, mew=2)
            panel.axvline(0, color="#888", lw=0.8)
            panel.set_title(target, fontsize=9)
        panels[0].set_yticks(range(len(scores)), list(scores), fontsize=8)
        panels[0].invert_yaxis()
        figure.supxlabel("rank correlation over examples (line: mean over seeds)", fontsize=9)
        return figure


def interval_text(interval: Sequence[float | None] | None) -> str:
    """An interval of epochs in words: `(1.5 to 8.0)`, `(from 20.0)` when it is open, empty when there is none."""
    if interval is None:
        return ""
    low, high = interval
    return f"(from {low:.1f})" if high is None else f"({low:.1f} to {high:.1f})"


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


def _log_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(numticks=8))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("mean privacy loss of the forget set")
