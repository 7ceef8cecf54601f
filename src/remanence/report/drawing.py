"""How figures are saved; their style is `display.figure_style`."""

from __future__ import annotations

import io
import re
from pathlib import Path

from matplotlib.figure import Figure

from remanence.display.figure_style import SERIES, look, new_figure
from remanence.display.html import human
from remanence.storage import atomic

__all__ = [
    "SERIES",
    "human",
    "look",
    "new_figure",
    "save_figure",
    "save_png",
    "save_svg",
    "to_svg",
]


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
