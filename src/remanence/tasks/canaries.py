"""Canaries: examples that a fair coin includes in training or leaves out, so that one run can be audited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.data import Examples
from remanence.tasks.randomness import derive_seed
from remanence.types import Ids


@dataclass(frozen=True, eq=False)
class Canaries:
    """The canaries of a run.

    Args:
        examples: all of them, as they are or would have been trained on.
        included: [n] whether the coin included each in training.
    """

    examples: Examples
    included: NDArray[np.bool_]


def flip_coins(ids: Ids, seed: int) -> NDArray[np.bool_]:
    """Whether each canary is included in training; depends only on the seed and its id."""
    return np.array([derive_seed(seed, "canary", str(canary)) % 2 == 1 for canary in ids.tolist()], bool)
