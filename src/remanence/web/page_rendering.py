"""Render templates and draw figures."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fastapi.responses import HTMLResponse
from matplotlib.axes import Axes

from remanence.display.figure_style import picture_uri
from remanence.display.page_templates import templates_of
from remanence.display.plots import drawn_png


def format_minutes(minutes: float) -> str:
    """A duration with its unit: 0.04 s, 12 s, 3.2 min, 1.5 h."""
    seconds = 60 * minutes
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


_PAGES = templates_of("remanence.web")
_PAGES.filters["duration"] = format_minutes
_KEPT_FIGURES = 200
"""Of one run: a few megabytes."""
_DRAWING = threading.Lock()
"""Matplotlib's settings are global, so one figure is drawn at a time."""


def page(template: str, code: int = 200, /, **values: Any) -> HTMLResponse:
    """Render a template."""
    text = _PAGES.get_template(template).render(**values)
    return HTMLResponse(text.encode("utf-8", "replace"), code)  # a file may hold what is no Unicode character


def message(code: int, title: str, text: str, *, link: tuple[str, str] | None = None) -> HTMLResponse:
    """A page with one message and an optional link."""
    return page("message.html", code, title=title, text=text, link=link)


class Figures:
    """Drawn figures as PNG, kept by name: drawing takes a hundred times as long as the rest of a page."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def png(self, name: str, draw: Callable[[Axes], None]) -> bytes:
        """The figure of this name, drawn when it is not kept."""
        with _DRAWING:
            if name not in self._kept:
                self._kept[name] = drawn_png(draw)
            self._kept.move_to_end(name)
            while len(self._kept) > _KEPT_FIGURES:
                self._kept.popitem(last=False)
            return self._kept[name]

    def address(self, name: str, draw: Callable[[Axes], None]) -> str:
        """The same as a data: address."""
        return picture_uri(self.png(name, draw))
