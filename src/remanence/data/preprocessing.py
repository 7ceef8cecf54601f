"""Standardized inputs, and a train/test split for data that come without one."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from remanence.data.examples import Examples
from remanence.errors import DataError
from remanence.types import Ids

_TEST_ONE_IN = 5


def standardize(train: Examples, *others: Examples) -> tuple[Examples, ...]:
    """Subtract the mean of the training set and divide by its standard deviation.

    Images [n, channels, height, width] are standardized per channel, rows [n, features] per feature. Constant
    channels and features are only centred. Ids and labels stay; the digest changes with the inputs.

    Args:
        train: the training examples, from which mean and standard deviation are computed.
        others: further examples to standardize in the same way, such as the test set.
    """
    if train.inputs.ndim < 2 or not train.inputs.is_floating_point():
        raise DataError(
            f"Only images and rows of features can be standardized; got {train.inputs.dtype} inputs "
            f"of shape {tuple(train.inputs.shape)}."
        )
    axes = [axis for axis in range(train.inputs.ndim) if axis != 1]
    deviation, mean = torch.std_mean(train.inputs, dim=axes, correction=0, keepdim=True)
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return tuple(part.with_inputs((part.inputs - mean).div_(deviation)) for part in (train, *others))


def hashed_test_mask(ids: Ids) -> NDArray[np.bool_]:
    """Choose about a fifth of the ids for testing, by a hash of the id, so that an id never changes sides."""
    digests = (hashlib.sha256(str(example_id).encode()).digest() for example_id in ids.tolist())
    return np.fromiter((int.from_bytes(digest[:8]) % _TEST_ONE_IN == 0 for digest in digests), bool, len(ids))


def train_test_split(
    examples: Examples, is_test: NDArray[np.bool_], *, what: str
) -> tuple[Examples, Examples]:
    """Split into training and test examples; neither may be empty."""
    if is_test.all() or not is_test.any():
        raise DataError(
            f"{what} must leave examples for training and for testing; {int(is_test.sum())} of "
            f"{len(is_test)} are for testing."
        )
    return examples.take(examples.ids[~is_test]), examples.take(examples.ids[is_test])
