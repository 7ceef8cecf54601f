"""The style of all figures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

SERIES = ("#1f6f8b", "#5a9367", "#c9a227", "#d1702a", "#a4243b")
"""From easy (cool) to hard (warm); distinguishable by lightness without color vision."""

_LOOK: dict[Any, Any] = {
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "remanence",
    "savefig.dpi": 160,
}


@contextmanager
def look() -> Iterator[None]:
    """Use the package's matplotlib settings inside the block; the user's own settings are not changed."""
    with mpl.rc_context(_LOOK):
        yield


def new_figure(width: float = 7.0, height: float = 3.8) -> Figure:
    """An empty figure, independent of pyplot and of any window system."""
    return Figure(figsize=(width, height))


def picture_png(figure: Figure) -> bytes:
    """The figure as PNG bytes, reproducible."""
    buffer = io.BytesIO()
    with look():
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def picture_uri(png: bytes) -> str:
    """A PNG as a data: URI, so that a notebook is self-contained."""
    return "data:image/png;base64," + base64.b64encode(png).decode()
