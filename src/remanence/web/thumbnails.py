"""Small pictures of examples."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 96


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether an input of this shape can be drawn: one or three channels of pixels."""
    return len(shape) == 3 and shape[0] in (1, 3)


def thumbnail_png(pixels: NDArray[np.floating[Any]]) -> bytes:
    """A PNG of [channels, height, width], small ones enlarged without smoothing; grey is ink on paper.

    Numbers from 0 to 1 are taken as they are; others (standardized, say) are shown from their least to their largest.
    """
    numbers = np.nan_to_num(pixels.astype(np.float64), posinf=1, neginf=0)
    least, most = min(0.0, float(numbers.min())), max(1.0, float(numbers.max()))
    levels = np.round(255 * ((numbers - least) / (most - least))).astype(np.uint8)
    drawn = (
        Image.fromarray(255 - levels[0]) if len(levels) == 1 else Image.fromarray(levels.transpose(1, 2, 0))
    )
    times = max(1, SIDE // max(drawn.size))
    drawn = drawn.resize((drawn.width * times, drawn.height * times), Image.Resampling.NEAREST)
    drawn.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    drawn.save(buffer, format="PNG")
    return buffer.getvalue()
