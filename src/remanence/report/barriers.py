"""Figures of loss barriers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from remanence.report.drawing import SERIES, human, look, new_figure

_COLOURS = {"pair": SERIES[0], "before": SERIES[4], "after": SERIES[0], "oracles": "#777777"}
_NAMES = {
    "pair": "between the two",
    "before": "oracle – before unlearning",
    "after": "oracle – after unlearning",
    "oracles": "oracle – oracle",
}


def barrier_figure(pairs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Figure:
    """How far the loss rises above the chord along each line, a panel a subset.

    Args:
        pairs: each with `kind` and, by subset, `places` and `rise`.
        rows: the summary, with `kind`, `subset`, `mean`.
    """
    subsets = list(dict.fromkeys(row["subset"] for row in rows))
    means = {(row["kind"], row["subset"]): row["mean"] for row in rows}
    with look():
        figure = new_figure(3.4 * len(subsets) + 0.6, 3.4)
        panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
        for panel, subset in zip(panels, subsets, strict=True):
            named: set[str] = set()
            for pair in pairs:
                kind, curve = pair["kind"], pair["curves"][subset]
                label = None if kind in named else f"{_NAMES[kind]}: {human(means[kind, subset])}"
                named.add(kind)
                panel.plot(
                    curve["places"], curve["rise"], color=_COLOURS[kind], lw=1.2, alpha=0.8, label=label
                )
            panel.axhline(0, color="#333", lw=0.8)
            panel.set_title(subset, fontsize=11)
            panel.set_xlabel("place on the line")
            panel.legend(fontsize=7, title="mean barrier", title_fontsize=7)
        panels[0].set_ylabel("loss above the chord, nats")
        return figure
