"""Random crop and flip, drawn separately for each example and epoch."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from remanence.errors import InputError
from remanence.types import Ids

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1, _FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def augment(
    inputs: Tensor, ids: Ids, epoch: int, seed: int, *, padding: int = 4, flip: bool = True
) -> Tensor:
    """Shift each image by up to `padding` pixels, padded with zeros, and flip half of them horizontally.

    The result for an example depends only on its id, the epoch and the seed, not on the batch it is in.

    Args:
        inputs: images [n, channels, height, width].
        ids: ids of the images.
        epoch: number of the pass over the data.
        seed: random seed of the run.
        padding: the largest shift in pixels; 0 for none.
        flip: flip an image with probability 1/2.
    """
    if inputs.ndim != 4 or len(inputs) != len(ids):
        raise InputError(
            f"Augmentation needs images [n, channels, height, width] with {len(ids)} ids; "
            f"got shape {tuple(inputs.shape)}."
        )
    if padding < 0:
        raise InputError(f"`padding` must not be negative; got {padding}.")
    n, channels, height, width = inputs.shape
    draws = _draws(ids, epoch, seed)
    span = np.uint64(2 * padding + 1)
    down, right = ((draws >> np.uint64(shift)) % span for shift in (1, 32))
    columns = np.tile(np.arange(width), (n, 1))
    if flip:
        flipped = (draws & np.uint64(1)).astype(bool)
        columns[flipped] = columns[flipped, ::-1]
    rows = np.arange(height) + down.astype(np.int64)[:, None]
    columns += right.astype(np.int64)[:, None]
    pixels = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    index = torch.from_numpy(pixels.reshape(n, 1, height * width)).to(inputs.device)
    padded = F.pad(inputs, (padding, padding, padding, padding)).flatten(2)
    return padded.gather(2, index.expand(n, channels, height * width)).view(inputs.shape)


def _draws(ids: Ids, epoch: int, seed: int) -> NDArray[np.uint64]:
    """64 random bits per id: SplitMix64 of seed, epoch and id, in turn."""
    if ids.dtype.kind == "U":
        digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in ids.tolist())
        keys = np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(ids))
    else:
        keys = ids.astype(np.int64).view(np.uint64)
    state = _mix(np.array([seed % 2**64], np.uint64))
    state = _mix(state ^ np.array([epoch % 2**64], np.uint64))
    return _mix(state ^ keys)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64; products wrap around."""
    bits = bits + _INCREMENT
    bits = (bits ^ (bits >> np.uint64(30))) * _FACTOR_1
    bits = (bits ^ (bits >> np.uint64(27))) * _FACTOR_2
    return bits ^ (bits >> np.uint64(31))
