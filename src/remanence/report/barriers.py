"""Loss barriers as a figure and as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from remanence.audit.barrier_comparison import BarrierComparison
from remanence.report.drawing import SERIES, human, look, new_figure, save_figure
from remanence.storage import atomic
from remanence.storage.lock import exclusive

_COLOURS = {"pair": SERIES[0], "before": SERIES[4], "after": SERIES[0], "oracles": "#777777"}
_NAMES = {
    "pair": "between the two",
    "before": "oracle – before unlearning",
    "after": "oracle – after unlearning",
    "oracles": "oracle – oracle",
}


def write_barriers(out: Path, comparison: BarrierComparison) -> None:
    """Write curves.csv, barriers.json and barriers.svg into a folder."""
    document = comparison.document()
    with exclusive(out / ".lock", f"Another process is writing to {out}; wait for it."):
        atomic.write_text(out / "curves.csv", _csv(document["pairs"]))
        atomic.write_json(out / "barriers.json", document)
        save_figure(barrier_figure(document["pairs"], document["summary"]), out / "barriers.svg")


def _csv(pairs: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["kind", "a", "b", "subset", "place", "loss", "rise"])
    for pair in pairs:
        for subset, curve in pair["curves"].items():
            for row in zip(curve["places"], curve["losses"], curve["rise"], strict=True):
                writer.writerow([pair["kind"], pair["a"], pair["b"], subset, *row])
    return text.getvalue()


def barrier_figure(pairs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Figure:
    """How far the loss rises above the chord along each line, one panel per subset.

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
