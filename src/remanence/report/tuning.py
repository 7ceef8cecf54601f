"""The picture of a tuning: every trial, how good it got, how fast, and which was chosen."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from remanence.experiments import Tuning
from remanence.report.drawing import SERIES, look, new_figure

_WORDS = {"learning_rate": "learning rate", "coefficient": "L1 coefficient"}


def tuning_figure(tuning: Tuning) -> Figure:
    """A panel for each hyperparameter: its value against the balance; one more: the balance over steps."""
    names = list(tuning.tried[0].options)
    chosen = next(tried for tried in tuning.tried if tuning.is_choice(tried))
    best = max(tried.best for tried in tuning.tried)
    level = tuning.level
    with look():
        figure = new_figure(3.4 * (len(names) + 1), 3.6)
        *panels, curves = figure.subplots(1, len(names) + 1, sharey=True)
        for panel, name in zip(panels, names, strict=True):
            for tried in tuning.tried:
                marker = "x" if tried.diverged else "o"
                colour = SERIES[4] if tried is chosen else SERIES[0]
                panel.plot(tried.options[name], tried.best, marker, c=colour, ms=9 if tried is chosen else 5)
            panel.axhspan(level, best, color="#999", alpha=0.2, lw=0)
            panel.set_xscale("log")
            panel.set_xlabel(_WORDS.get(name, name.replace("_", " ")))
        panels[0].set_ylabel("balance (1 = as the oracles)")
        for tried in tuning.tried:
            colour, width = (SERIES[4], 2.2) if tried is chosen else (SERIES[0], 0.7)
            curves.plot(tried.steps, tried.balance, c=colour, lw=width, alpha=1 if tried is chosen else 0.6)
        curves.axhspan(level, best, color="#999", alpha=0.2, lw=0)
        curves.axhline(tuning.choice.untouched, color="#555", ls=":", lw=1)
        curves.set_xscale("log")
        curves.set_xlabel("steps of unlearning")
        curves.legend(handles=_legend(tuning), fontsize=8, loc="best")
        return figure


def _legend(tuning: Tuning) -> list[Line2D]:
    return [
        Line2D([], [], color=SERIES[4], lw=2.2, label="chosen"),
        Line2D([], [], color=SERIES[0], lw=0.7, label=f"the other {len(tuning.tried) - 1}"),
        Line2D([], [], color="#999", lw=6, alpha=0.4, label="counts as there"),
        Line2D([], [], color="#555", ls=":", lw=1, label="before unlearning"),
    ]
