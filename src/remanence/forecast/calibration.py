"""What calibration leaves: for each forget set, how hard it is and how long unlearning it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.scores import ScoreTable
from remanence.types import Ids, positions_of

PRIVACY_LOSS = "privacy_loss"

SUMMARIES: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "mean": lambda losses: float(losses.mean()),
    "median": lambda losses: float(np.median(losses)),
    "upper quartile": lambda losses: float(np.quantile(losses, 0.75)),
    "upper tenth": lambda losses: float(np.quantile(losses, 0.9)),
}
"""How the losses of many examples become the one loss of a set; which of them serves is found by calibration."""


@dataclass(frozen=True)
class Difficulty:
    """How hard a set is to forget, by everything that can be known beforehand.

    Args:
        size: how many examples.
        losses: the set's privacy loss by the name of its summary.
        proxies: the mean of each proxy over the set.
        done: the model treats the set as one never trained on it would, before anything is done.
    """

    size: int
    losses: Mapping[str, float]
    proxies: Mapping[str, float]
    done: bool = False


@dataclass(frozen=True)
class CalibrationRun:
    """One forget set that was unlearned to see how long it takes.

    Args:
        name: of the set.
        difficulty: how hard it is.
        steps: after how many steps it was unlearned, or for how many it was tried.
        reached: which of the two.
    """

    name: str
    difficulty: Difficulty
    steps: float
    reached: bool


def difficulty_of(ids: Ids, table: ScoreTable, *, done: bool = False) -> Difficulty:
    """How hard this set is, from a table with the privacy loss and the proxies of all examples."""
    rows = positions_of(ids, table.ids, what="the trace")
    losses = table.column(PRIVACY_LOSS).values[rows]
    proxies = {
        name: float(scores.values[rows].mean())
        for name, scores in table.columns.items()
        if name != PRIVACY_LOSS
    }
    summaries = {name: summary(losses) for name, summary in SUMMARIES.items()}
    return Difficulty(len(rows), summaries, proxies, done)
