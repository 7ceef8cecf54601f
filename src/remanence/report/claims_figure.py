"""All claims at a glance: on which side of chance each lies, and whether it is decided."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from remanence.report.drawing import SERIES, look, new_figure
from remanence.report.markdown import MARKS

_SMALLEST = 1e-3
"""Smaller p-values are drawn here: with few seeds they differ by the number of seeds alone."""
_COLOURS = {"agrees": SERIES[0], "disagrees": SERIES[3], "undecided": "#999999"}
_FACES = {**_COLOURS, "undecided": "white"}
_WIDTH = 74
"""Characters of a claim on one line."""


def claims_figure(studies: Sequence[Mapping[str, Any]], level: float) -> Figure:
    """One row per claim: the smaller of its two corrected p-values, to the right if it speaks for the claim.

    Args:
        studies: one document per study: name and verdicts.
        level: a claim is decided by a p-value below this.
    """
    rows = [(study["name"], verdict) for study in studies for verdict in study["verdicts"]]
    with look():
        figure = new_figure(9.6, 0.34 * len(rows) + 1.3)
        axes = figure.subplots()
        for place, (_, verdict) in enumerate(rows):
            x, colour = _evidence(verdict["test"]), _COLOURS[verdict["agreement"]]
            axes.plot([0, x], [place, place], color=colour, lw=1.2)
            axes.plot(x, place, "o", color=colour, mfc=_FACES[verdict["agreement"]])
        for x in (-1, 1):
            axes.axvline(-x * float(np.log10(level)), color="#555", lw=0.8, ls="--")
        axes.axvline(0, color="#555", lw=0.8)
        marks = (0.5, level, level / 10)
        places = [-float(np.log10(p)) for p in marks]
        labels = [f"{p:g}" for p in marks]
        axes.set_xticks(
            [*(-x for x in reversed(places)), 0, *places], [*reversed(labels), "1", *labels], fontsize=8
        )
        axes.set_xlim(1.05 * np.log10(_SMALLEST), -1.05 * np.log10(_SMALLEST))
        axes.set_yticks(range(len(rows)), [_label(name, verdict) for name, verdict in rows], fontsize=7)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(
            f"corrected p-value: against the claim to the left, for it to the right (dashed: {level:g})",
            fontsize=8,
        )
        handles = [
            Line2D(
                [],
                [],
                marker="o",
                ls="",
                color=colour,
                mfc=_FACES[word],
                label=MARKS[word].strip("*"),
            )
            for word, colour in _COLOURS.items()
        ]
        figure.legend(handles=handles, fontsize=8, loc="outside upper center", ncols=3, frameon=False)
        return figure


def _evidence(test: Mapping[str, Any] | None) -> float:
    """The signed logarithm of the smaller p-value; 0 without a test."""
    if test is None:
        return 0.0
    p, p_against = (max(_SMALLEST, test[name]) for name in ("p_holm", "p_against_holm"))
    return -float(np.log10(p)) if p <= p_against else float(np.log10(p_against))


def _label(name: str, verdict: Mapping[str, Any]) -> str:
    """The study and what tells its claims apart, on two lines at most."""
    claim, _, which = verdict["claim"].partition(" Here: ")
    name = f"{name}, {which.removesuffix('.')}" if which else name
    return textwrap.fill(f"{name}: {claim}", _WIDTH, max_lines=2, placeholder=" …")
