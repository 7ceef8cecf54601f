"""Choose a learning rate for unlearning: the one that stays nearest to the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t


@dataclass(frozen=True)
class LearningRateTrial:
    """One seed's run with one learning rate.

    Args:
        learning_rate: the one tried.
        seed: the repetition; distances of one seed are compared with each other.
        curves: metric name to its value after each evaluation.
        oracle: metric name to the oracles' mean.
    """

    learning_rate: float
    seed: int
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
SIGNIFICANCE = 0.05
"""Level of the paired one-sided t test over seeds; a larger distance that fails it counts as equal too."""


def choose_learning_rate(trials: Sequence[LearningRateTrial]) -> tuple[float, dict[str, float]]:
    """Choose the smallest learning rate that is not clearly worse than the best; return it and the mean distances.

    The best is the one with the smallest distance to the oracle on average over seeds. Another is clearly worse when
    its distance is more than 5 % larger and the difference, paired by seed, is significant. Between equally good
    rates chance would decide, and so would a rounding error; the smallest disturbs the model least.
    """
    distances: dict[float, dict[int, float]] = {}
    for trial in sorted(trials, key=lambda trial: trial.learning_rate):
        distances.setdefault(trial.learning_rate, {})[trial.seed] = trial.distance
    means = {rate: float(np.mean(list(by_seed.values()))) for rate, by_seed in distances.items()}
    best = distances[min(means, key=lambda rate: means[rate])]
    choice = next(rate for rate, by_seed in distances.items() if not is_clearly_worse(by_seed, best))
    return choice, {str(rate): mean for rate, mean in means.items()}


def is_clearly_worse(distances: Mapping[int, float], best: Mapping[int, float]) -> bool:
    """Whether distances by seed are larger than the best ones by more than the margin and more than chance."""
    if np.mean(list(distances.values())) <= (1 + MARGIN) * np.mean(list(best.values())):
        return False
    gaps = np.array([distances[seed] - best[seed] for seed in distances if seed in best])
    if len(gaps) < 2:  # nothing says how large chance is
        return True
    critical = float(t.ppf(1 - SIGNIFICANCE, len(gaps) - 1))
    return bool(gaps.mean() > critical * gaps.std(ddof=1) / np.sqrt(len(gaps)))
