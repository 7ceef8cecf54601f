"""Figures of studies: plain numbers in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from remanence.report.drawing import SERIES, look, new_figure
from remanence.trials import DurationSummary

_MARKERS = "osD^vP"


@dataclass(frozen=True)
class Point:
    """Times to unlearn one forget set.

    Args:
        loss: its mean privacy loss.
        summary: over seeds.
        each: time of every seed, and whether it got there.
    """

    loss: float
    summary: DurationSummary
    each: Sequence[tuple[float, bool]]


@dataclass(frozen=True)
class Series:
    """One line of a figure; `limit` is how long a run was watched."""

    name: str
    points: Sequence[Point]
    limit: float


def times_figure(series: Sequence[Series]) -> Figure:
    """Mean time to unlearn against mean privacy loss, a dot a seed, hollow where it did not get there in time."""
    with look():
        figure = new_figure(7.0, 4.2)
        axes = figure.subplots()
        handles = []
        for i, line in enumerate(series):
            colour, marker = SERIES[i % len(SERIES)], _MARKERS[i % len(_MARKERS)]
            losses = [point.loss for point in line.points]
            means = [point.summary.mean for point in line.points]
            spreads = [point.summary.sd for point in line.points]
            axes.errorbar(losses, means, spreads, color=colour, marker=marker, ms=6, lw=1.5, capsize=3)
            for point in line.points:
                for value, reached in point.each:
                    face = colour if reached else "white"
                    axes.plot(point.loss, value, marker, mfc=face, mec=colour, ms=4, alpha=0.55, zorder=4)
            handles.append(Line2D([], [], color=colour, marker=marker, label=line.name))
        if any(not reached for line in series for point in line.points for _, reached in point.each):
            hollow = Line2D([], [], marker="o", mfc="white", mec="#555", ls="", label="not there by the end")
            handles.append(hollow)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("mean privacy loss of the forget set")
        axes.set_ylabel("epochs to unlearn")
        axes.legend(handles=handles, fontsize=9)
        return figure
