"""Stored pixels, which stay bytes until somebody asks for what a network sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 64


class Pixels:
    """Grey levels 0..255 of n pictures of one size; as numbers they take four times the memory.

    Args:
        levels: [n, height, width, channels]. Not copied where each picture's bytes lie together.
    """

    def __init__(self, levels: NDArray[np.uint8]) -> None:
        self._levels = levels if _together(levels) else _gathered(levels)

    def __len__(self) -> int:
        return len(self._levels)

    @property
    def shape(self) -> torch.Size:
        """Of the tensor that they become: [n, channels, height, width]."""
        n, height, width, channels = self._levels.shape
        return torch.Size((n, channels, height, width))

    def take(self, rows: NDArray[np.int64]) -> Pixels:
        """Some of the pictures, in this order."""
        return Pixels(self._levels[rows])

    def numbers(self) -> Tensor:
        """What a network sees: float32 [n, channels, height, width] in [0, 1]."""
        inputs = torch.empty(self.shape)
        for start in range(0, len(self), _BLOCK):
            self._convert(start, inputs[start : start + _BLOCK])
        return inputs

    def blocks(self) -> Iterator[Tensor]:
        """The same, a few pictures at a time, which are overwritten by the next."""
        room = torch.empty((_BLOCK, *self.shape[1:]))
        for start in range(0, len(self), _BLOCK):
            yield self._convert(start, room[: len(self) - start])

    def _convert(self, start: int, block: Tensor) -> Tensor:
        """As many pictures as the block holds; few, so that they are still in the cache when they are divided."""
        levels = self._levels[start : start + len(block)].transpose(0, 3, 1, 2)
        block.copy_(torch.from_numpy(np.array(levels, order="C")))
        return block.div_(255)


def as_labels(values: NDArray[Any]) -> Tensor:
    """Class numbers as int64."""
    return torch.from_numpy(np.array(values, dtype=np.int64))


def _together(levels: NDArray[np.uint8]) -> bool:
    return len(levels) < 2 or levels.strides[0] == levels[0].size


def _gathered(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy, a few pictures at a time: whole rows of what lies across them would leave the cache."""
    found = np.empty(levels.shape, np.uint8)
    for start in range(0, len(levels), _BLOCK):
        found[start : start + _BLOCK] = levels[start : start + _BLOCK]
    return found
