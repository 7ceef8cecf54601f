"""What R training runs show of every example, and the k that follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.certify.absorption import Absorption, Pulls
from remanence.certify.bound import PathBound
from remanence.certify.descent import Descent

Floats = NDArray[np.float64]

_HELD = 1 << 24
"""Numbers held at once while pulls add up; runs are taken in groups that fit."""


@dataclass(frozen=True)
class Evidence:
    """For every k tried and every example, a high-probability bound on the mean of F, and F's Lipschitz constant.

    Args:
        grid: the k that were tried, increasing.
        upper: [len(grid), n] bounds F̄.
        lipschitz: [len(grid), n] constants K.
        chance: the probability that any one bound fails.
        weights: [d, C] of one of the runs.
    """

    grid: NDArray[np.int64]
    upper: Floats
    lipschitz: Floats
    chance: float
    weights: Floats

    def certified(self, bound: PathBound, epsilon: float, worst: float) -> tuple[Floats, Floats]:
        """k and ε of every example; where no k of the grid is proved, the worst case stands in."""
        met = np.stack(
            [bound.threshold(K, epsilon) >= F for F, K in zip(self.upper, self.lipschitz, strict=True)]
        )
        found, at = met.any(axis=0), met.argmax(axis=0)
        columns = np.arange(met.shape[1])
        k = np.where(found, self.grid[at].astype(np.float64), worst)
        proved = np.minimum(bound.epsilon(self.upper[at, columns], self.lipschitz[at, columns]), epsilon)
        return np.minimum(k, worst), np.where(found & (k <= worst), proved, epsilon)

    def pull(self, k: float, position: int) -> float:
        """F̄ of an example at the largest k tried that is not above this one; a certified k is on the grid."""
        at = int(np.searchsorted(self.grid, k, side="right")) - 1
        return float(self.upper[at, position])


def gather(
    descent: Descent, worst: float, *, runs: int, failure: float, simultaneous: bool, rng: np.random.Generator
) -> Evidence:
    """Follow every example through R runs."""
    problem, steps = descent.problem, descent.dynamics.steps or 0
    grid = step_grid(worst)
    schedules = [Absorption(descent.dynamics.contraction, steps, int(k)) for k in grid]
    means, weights = mean_pulls(descent, schedules, runs, rng)
    lipschitz = np.outer([each.amplification for each in schedules], deviation_lipschitz(descent))
    chance = failure / (len(problem) * len(grid)) if simultaneous else failure
    upper = means + lipschitz * np.sqrt(2 * np.log(1 / chance) / runs)
    return Evidence(grid, upper, lipschitz, chance, weights)


def step_grid(worst: float, most: int = 32) -> NDArray[np.int64]:
    """The k that are tried: half spaced geometrically, half evenly, up to the worst case (or 10,000)."""
    top = int(min(worst, 10_000))
    spread = np.concatenate([np.geomspace(1, max(top, 1), most // 2), np.linspace(0, top, most // 2)])
    return np.unique(np.minimum(np.round(spread), top).astype(np.int64))


def deviation_lipschitz(descent: Descent) -> Floats:
    """How fast each example's e_t can change with the weights: η(‖x‖²/4 + L)/(n − 1)."""
    own = np.square(descent.problem.features).sum(axis=1) / 4
    scale = descent.dynamics.learning_rate / (len(descent.problem) - 1)
    return np.asarray(scale * (own + descent.problem.smoothness()))


def mean_pulls(
    descent: Descent, schedules: list[Absorption], runs: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The mean of F over runs, [schedules, n], and one run's weights [d, C]."""
    n, outputs, steps = len(descent.problem), descent.problem.outputs, schedules[0].steps
    group = max(1, min(runs, _HELD // (2 * n * outputs * len(schedules))))
    total, weights = np.zeros((len(schedules), n)), np.zeros((0, 0))
    for start in range(0, runs, group):
        size = min(group, runs - start)
        pulls = [Pulls.start(each, (n, size * outputs)) for each in schedules]
        scratch = np.empty((n, size * outputs))
        for t, (columns, shift) in enumerate(descent.deviations(steps, size, rng)):
            weights = columns[:, :outputs]
            for each in pulls:
                each.add(t, shift, scratch)
        for i, each in enumerate(pulls):
            by_run = each.finish().reshape(n, size, outputs).sum(axis=2)
            total[i] += np.sqrt(by_run / descent.dynamics.variance).sum(axis=1)
    return total / runs, weights
