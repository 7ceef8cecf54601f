"""From stored pixels to what a network sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remanence.data.examples import Examples
from remanence.errors import DataError

_BLOCK = 64


def from_pixels(pixels: NDArray[np.uint8]) -> Tensor:
    """Grey levels 0..255 [n, height, width, channels] as float32 [n, channels, height, width] in [0, 1]."""
    n, height, width, channels = pixels.shape
    inputs = torch.empty(n, channels, height, width)
    for start in range(0, n, _BLOCK):  # what is converted is still in the cache when it is divided
        block = inputs[start : start + _BLOCK]
        block.copy_(
            torch.from_numpy(np.array(pixels[start : start + _BLOCK].transpose(0, 3, 1, 2), order="C"))
        )
        block.div_(255)
    return inputs


def as_labels(values: NDArray[Any]) -> Tensor:
    """Class numbers as int64."""
    return torch.from_numpy(np.array(values, dtype=np.int64))


def standardize(train: Examples, *others: Examples) -> tuple[Examples, ...]:
    """The same examples with the training set's mean taken off and divided by its standard deviation.

    Images [n, channels, height, width] by channel, feature rows [n, features] by feature. What is constant
    in the training set is only centred. Ids and labels stay; the digest changes with the inputs.
    """
    if train.inputs.ndim < 2 or not train.inputs.is_floating_point():
        raise DataError(
            f"Only images and rows of features can be standardized; got {train.inputs.dtype} inputs "
            f"of shape {tuple(train.inputs.shape)}."
        )
    axes = [axis for axis in range(train.inputs.ndim) if axis != 1]
    deviation, mean = torch.std_mean(train.inputs, dim=axes, correction=0, keepdim=True)
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return tuple(
        Examples(each.ids, (each.inputs - mean).div_(deviation), each.labels, each.class_names)
        for each in (train, *others)
    )
