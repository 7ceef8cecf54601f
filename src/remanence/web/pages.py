"""Templates into pages, and pictures for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fastapi.responses import HTMLResponse
from matplotlib.axes import Axes

from remanence.display.figure_style import picture_uri
from remanence.display.page_templates import templates_of
from remanence.display.plots import drawn_png


def lasting(minutes: float) -> str:
    """A time as people say it: 0.04 s, 12 s, 3.2 min, 1.5 h."""
    seconds = 60 * minutes
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


_PAGES = templates_of("remanence.web")
_PAGES.filters["lasting"] = lasting
_DRAWING = threading.Lock()
"""Matplotlib's settings are the process's; one figure is drawn at a time."""


def page(template: str, code: int = 200, /, **values: Any) -> HTMLResponse:
    """A filled template."""
    return HTMLResponse(_PAGES.get_template(template).render(**values), code)


def message(code: int, title: str, text: str, *, link: tuple[str, str] | None = None) -> HTMLResponse:
    """A page that says one thing, and perhaps where to go on."""
    return page("message.html", code, title=title, text=text, link=link)


def png(draw: Callable[[Axes], None]) -> bytes:
    """A drawing."""
    with _DRAWING:
        return drawn_png(draw)


def picture(draw: Callable[[Axes], None]) -> str:
    """A drawing as a data: address."""
    return picture_uri(png(draw))
