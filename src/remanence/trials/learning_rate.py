"""Choose a learning rate for unlearning: the one that stays nearest to the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LearningRateTrial:
    """One seed's run with one learning rate.

    Args:
        learning_rate: the one tried.
        curves: metric name to its value after each evaluation.
        oracle: metric name to the oracles' mean.
    """

    learning_rate: float
    curves: Mapping[str, Sequence[float]]
    oracle: Mapping[str, float]

    @property
    def distance(self) -> float:
        """Mean absolute distance to the oracle over metrics and evaluations.

        Averaging over the run rewards getting there early; both sides count, so a run that wrecks the
        model, or forgets more than retraining would, loses.
        """
        gaps = [np.abs(np.asarray(curve) - self.oracle[name]).mean() for name, curve in self.curves.items()]
        return float(np.mean(gaps))


MARGIN = 0.05
"""Distances this close (relative to the best) count as equal."""


def choose_learning_rate(trials: Sequence[LearningRateTrial]) -> tuple[float, dict[str, float]]:
    """The learning rate that stays nearest to the oracle on average over seeds, and the table of distances.

    Of those within 5 % of the best, the smallest is taken: it disturbs the model least.
    """
    rates = sorted({trial.learning_rate for trial in trials})
    mean = {rate: float(np.mean([t.distance for t in trials if t.learning_rate == rate])) for rate in rates}
    enough = (1 + MARGIN) * min(mean.values())
    return next(rate for rate in rates if mean[rate] <= enough), {str(rate): mean[rate] for rate in rates}
