"""Which examples are for testing where the data do not say."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from remanence.data.examples import Examples
from remanence.errors import DataError
from remanence.types import Ids

_ONE_IN = 5


def held_out(ids: Ids) -> NDArray[np.bool_]:
    """About a fifth of the ids, by a hash of each: whatever comes or goes around it, an id stays on its side."""
    digests = (hashlib.sha256(str(each).encode()).digest() for each in ids.tolist())
    return np.fromiter((int.from_bytes(d[:8]) % _ONE_IN == 0 for d in digests), bool, len(ids))


def parted(examples: Examples, testing: NDArray[np.bool_], *, what: str) -> tuple[Examples, Examples]:
    """Training and test examples; neither may be empty."""
    if testing.all() or not testing.any():
        raise DataError(
            f"{what} must leave examples for training and for testing; {int(testing.sum())} of "
            f"{len(testing)} are for testing."
        )
    return examples.take(examples.ids[~testing]), examples.take(examples.ids[testing])
