"""Groups of examples that are equally hard, and the share of each group that is removed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PARTS = 10
"""Number of groups per class: tenths by difficulty."""


def equally_hard(losses: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n] the group of each example: the same class, and the same tenth of the class by privacy loss.

    Args:
        losses: [n] privacy losses.
        labels: [n] classes.
    """
    groups = np.zeros(len(losses), np.int64)
    for position, label in enumerate(np.unique(labels)):
        members = np.flatnonzero(labels == label)
        ranks = np.argsort(np.argsort(losses[members], kind="stable"), kind="stable")
        groups[members] = PARTS * position + PARTS * ranks // max(1, len(members))
    return groups


def shares_removed(groups: NDArray[np.int64], removed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[..., n] the share of each example's group that is removed.

    Args:
        groups: [n] the group of each example.
        removed: [..., n] which examples are removed.
    """
    sizes = np.bincount(groups)
    rows = removed.reshape(-1, len(groups))
    gone = np.stack([np.bincount(groups[row], minlength=len(sizes)) for row in rows])
    shares: NDArray[np.float64] = (gone / np.maximum(sizes, 1))[:, groups]
    return shares.reshape(removed.shape)
