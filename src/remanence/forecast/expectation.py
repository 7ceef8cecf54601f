"""What models never trained on a set are expected to show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Expectation:
    """The expected metrics of a model never trained on a set.

    Args:
        mia: share of the set that the membership attack calls never trained on.
        mia_spread: standard deviation of that share between such models.
        log_odds: mean log-odds of the true class on the set, minus that on the test set.
        log_odds_spread: its standard deviation between such models.
        moved: by how much `log_odds` was lowered because hard examples leave together; its error is as large.
        beyond: in which respects the set is outside the range of the pool.
    """

    mia: float
    mia_spread: float
    log_odds: float
    log_odds_spread: float
    moved: float = 0.0
    beyond: tuple[str, ...] = ()

    @property
    def by_metric(self) -> dict[str, tuple[float, float]]:
        """Expected value and spread, by the name of the metric."""
        return {
            "mia_confidence": (self.mia, self.mia_spread),
            "log_odds": (self.log_odds, self.log_odds_spread),
        }


@dataclass(frozen=True, eq=False)
class SignalExpectation:
    """One signal of models never trained on a set, example by example.

    Args:
        values: [m] the expected signal of each example.
        variances: [m] its variance between such models, without the shifts below.
        models: [m] number of models that the expectation is estimated from.
        groups: [m] the class of each example.
        shift: variance of the shift of a model that is common to all examples.
        group_shift: variance of the further shift that is common to the examples of one class.
        lowered: [m] by how much the values were lowered because examples as hard leave too; their error is as large.
    """

    values: Floats
    variances: Floats
    models: NDArray[np.int64]
    groups: NDArray[np.int64]
    shift: float
    group_shift: float
    lowered: Floats
