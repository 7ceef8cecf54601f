"""Random crop and flip, drawn for each example and epoch by itself."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from remanence.errors import InputError
from remanence.types import Ids

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def augment(
    inputs: Tensor, ids: Ids, epoch: int, seed: int, *, padding: int = 4, flip: bool = True
) -> Tensor:
    """Each picture shifted by up to `padding` pixels (zeros come in) and, every other time, mirrored.

    What happens to an example depends on its id, the epoch and the seed alone, not on the batch it is in.

    Args:
        inputs: pictures [n, channels, height, width].
        ids: their ids.
        epoch: which pass over the data.
        seed: of the run.
        padding: the largest shift; 0 for none.
        flip: mirror left and right half of the time.
    """
    if inputs.ndim != 4 or len(inputs) != len(ids):
        raise InputError(
            f"Augmentation needs pictures [n, channels, height, width] with {len(ids)} ids; "
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
        mirrored = (draws & np.uint64(1)).astype(bool)
        columns[mirrored] = columns[mirrored, ::-1]
    rows = np.arange(height) + down.astype(np.int64)[:, None]
    columns += right.astype(np.int64)[:, None]
    where = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    index = torch.from_numpy(where.reshape(n, 1, height * width)).to(inputs.device)
    padded = F.pad(inputs, (padding, padding, padding, padding)).flatten(2)
    return padded.gather(2, index.expand(n, channels, height * width)).view(inputs.shape)


def _draws(ids: Ids, epoch: int, seed: int) -> NDArray[np.uint64]:
    """64 well-mixed bits for each id (SplitMix64 of seed, epoch and id, in turn)."""
    if ids.dtype.kind == "U":
        digests = (hashlib.blake2b(each.encode(), digest_size=8).digest() for each in ids.tolist())
        keys = np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(ids))
    else:
        keys = ids.astype(np.int64).view(np.uint64)
    state = _mixed(np.array([seed % 2**64], np.uint64))
    state = _mixed(state ^ np.array([epoch % 2**64], np.uint64))
    return _mixed(state ^ keys)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function; products wrap around."""
    bits = bits + _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))
