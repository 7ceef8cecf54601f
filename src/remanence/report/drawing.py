"""How figures are saved; their style is in `display.figure_style`."""

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
    "inline_svg",
    "look",
    "new_figure",
    "save_figure",
    "to_svg",
]


def to_svg(figure: Figure) -> str:
    """The figure as an inline <svg> element that scales with the page. The same figure gives the same text."""
    return inline_svg(_rendered(figure, "svg").decode())


def inline_svg(text: str) -> str:
    """The <svg> element of a vector file, without its size, so that it scales with the page."""
    head, body = text[text.index("<svg") :].split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + body


_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save_figure(figure: Figure, path: Path) -> None:
    """Save the figure as PNG, SVG or PDF, by the path's suffix; the same figure gives the same bytes."""
    atomic.write_bytes(path, _rendered(figure, path.suffix.removeprefix(".")))


def _rendered(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    with look():
        figure.savefig(buffer, format=kind, metadata=_METADATA[kind])
    return buffer.getvalue()
