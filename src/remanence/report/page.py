"""Self-contained pages: everything inside one file, nothing fetched."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imsave
from numpy.typing import NDArray

from remanence.display.page_templates import templates_of
from remanence.storage import atomic

_PAGES = templates_of("remanence.report")


def render_html(template: str, **values: Any) -> str:
    """A template, filled."""
    return _PAGES.get_template(template).render(**values)


def write_html(path: Path, template: str, **values: Any) -> None:
    """Fill a template and put the page in place."""
    atomic.write_text(path, render_html(template, **values))


def image_uri(pixels: NDArray[np.floating[Any]]) -> str:
    """A picture for an <img>: grey [height, width] or colour [height, width, 3], values from 0 to 1."""
    buffer = io.BytesIO()
    imsave(
        buffer,
        np.clip(pixels, 0, 1),
        cmap="gray_r",
        vmin=0,
        vmax=1,
        format="png",
        metadata={"Software": ""},
    )
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
