"""How every figure of the project looks, and how it is saved."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from remanence.storage import atomic

SERIES = ("#1f6f8b", "#5a9367", "#c9a227", "#d1702a", "#a4243b")
"""From easy (cool) to hard (warm); distinguishable without colour vision by lightness."""

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
    """Draw inside this and it looks like ours; the user's own settings are untouched."""
    with mpl.rc_context(_LOOK):
        yield


def new_figure(width: float = 7.0, height: float = 3.8) -> Figure:
    """An empty figure that needs no window system."""
    return Figure(figsize=(width, height))


def human(value: float) -> str:
    """A number as people write it: 0.12, 163, 3.7 × 10⁻⁸."""
    if value == 0 or 1e-2 <= abs(value) < 1e3:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} × 10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def to_svg(figure: Figure) -> str:
    """The figure as an inline <svg> element that scales with the page. The same figure gives the same text."""
    buffer = io.StringIO()
    with look():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()[buffer.getvalue().index("<svg") :]
    head, body = svg.split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + body


def save_svg(figure: Figure, path: Path) -> None:
    """The figure as a vector file of its own."""
    buffer = io.BytesIO()
    with look():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    atomic.write_bytes(path, buffer.getvalue())


_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save_figure(figure: Figure, path: Path) -> None:
    """The figure as PNG, SVG or PDF, by the path's ending; the same figure gives the same bytes."""
    kind = path.suffix.removeprefix(".")
    buffer = io.BytesIO()
    with look():
        figure.savefig(buffer, format=kind, metadata=_METADATA[kind])
    atomic.write_bytes(path, buffer.getvalue())


def save_png(figure: Figure, path: Path) -> None:
    """The figure as a picture file."""
    buffer = io.BytesIO()
    with look():
        figure.savefig(buffer, format="png", metadata={"Software": None})
    atomic.write_bytes(path, buffer.getvalue())
