"""Image pixels that stay bytes until a network needs them, at a quarter of the memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 64
"""Images converted at once: few, so that they are still in the cache when they are divided."""


class Pixels:
    """Bytes 0..255 of n images of the same size.

    Args:
        levels: [n, height, width, channels]. Copied only if the bytes of an image are not contiguous.
    """

    def __init__(self, levels: NDArray[np.uint8]) -> None:
        contiguous = len(levels) < 2 or levels.strides[0] == levels[0].size
        self._levels = levels if contiguous else _copy_by_blocks(levels)

    def __len__(self) -> int:
        return len(self._levels)

    @property
    def shape(self) -> torch.Size:
        """Shape of the tensor they convert to: [n, channels, height, width]."""
        n, height, width, channels = self._levels.shape
        return torch.Size((n, channels, height, width))

    def take(self, rows: NDArray[np.int64]) -> Pixels:
        return Pixels(self._levels[rows])

    def tensor(self) -> Tensor:
        """Convert to float32 [n, channels, height, width] in [0, 1]."""
        inputs = torch.empty(self.shape)
        for start in range(0, len(self), _BLOCK):
            self._convert(start, inputs[start : start + _BLOCK])
        return inputs

    def blocks(self) -> Iterator[Tensor]:
        """Convert block by block; each block overwrites the one before."""
        buffer = torch.empty((_BLOCK, *self.shape[1:]))
        for start in range(0, len(self), _BLOCK):
            yield self._convert(start, buffer[: len(self) - start])

    def _convert(self, start: int, block: Tensor) -> Tensor:
        """Fill `block` with the images from `start` on."""
        levels = self._levels[start : start + len(block)].transpose(0, 3, 1, 2)
        block.copy_(torch.from_numpy(np.array(levels, order="C")))
        return block.div_(255)


def _copy_by_blocks(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A contiguous copy. In one go, rows that cross all images would not fit into the cache."""
    copied = np.empty(levels.shape, np.uint8)
    for start in range(0, len(levels), _BLOCK):
        copied[start : start + _BLOCK] = levels[start : start + _BLOCK]
    return copied
