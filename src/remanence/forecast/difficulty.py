"""The difficulty of a forget set, and the runs that relate it to the steps of unlearning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.scores import ScoreTable
from remanence.types import Ids, positions_of

_PRIVACY_LOSS = "privacy_loss"
SUMMARIES: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "mean": lambda losses: float(losses.mean()),
    "median": lambda losses: float(np.median(losses)),
    "upper quartile": lambda losses: float(np.quantile(losses, 0.75)),
    "upper tenth": lambda losses: float(np.quantile(losses, 0.9)),
}
"""Ways to summarize the losses of many examples as one loss of a set; the calibration chooses between them."""


NOTHING = "nothing"
"""The way of a set that is left as it is."""


@dataclass(frozen=True)
class Difficulty:
    """How hard a set is to forget, by everything that is known beforehand.

    Args:
        size: number of examples.
        losses: the privacy loss of the set by the name of its summary.
        proxies: the mean of each proxy over the set.
        done: whether the criterion holds before any unlearning.
        way: what is done to the set, where a method treats sets differently: `nothing`, or any other name. Empty where
            all sets are treated alike.
    """

    size: int
    losses: Mapping[str, float]
    proxies: Mapping[str, float]
    done: bool = False
    way: str = ""

    def __post_init__(self) -> None:
        if self.losses.keys() != SUMMARIES.keys():
            raise InputError(f"`losses` must be {', '.join(SUMMARIES)}; got {', '.join(self.losses)}.")

    @property
    def no_steps(self) -> bool:
        """Whether unlearning ends before its first step: the criterion holds, and nothing is done to the set."""
        return self.done and self.way in ("", NOTHING)

    def comparable(self, other: Difficulty) -> bool:
        """Whether the steps of the one say something about those of the other: both none, or by the same way."""
        return self.no_steps == other.no_steps and (self.no_steps or self.way == other.way)


@dataclass(frozen=True)
class CalibrationRun:
    """One forget set that was unlearned to measure how long it takes.

    Args:
        name: name of the set.
        difficulty: how hard it is.
        steps: the steps it took or, if `reached` is false, the steps after which the search ended.
        reached: whether the criterion was reached.
    """

    name: str
    difficulty: Difficulty
    steps: float
    reached: bool


def difficulty_of(ids: Ids, table: ScoreTable, *, done: bool = False, way: str = "") -> Difficulty:
    """The difficulty of a set, from a table with the privacy losses and proxies of all examples."""
    rows = positions_of(ids, table.ids, what="the trace")
    losses = table.column(_PRIVACY_LOSS).values[rows]
    proxies = {
        name: float(scores.values[rows].mean())
        for name, scores in table.columns.items()
        if name != _PRIVACY_LOSS
    }
    summaries = {name: summary(losses) for name, summary in SUMMARIES.items()}
    return Difficulty(len(rows), summaries, proxies, done, way)
