"""Bounds on every example's pulls from R training runs, and the certified k that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.certify.absorption import Absorption, Pulls
from remanence.certify.descent import Descent
from remanence.certify.path_bound import PathBound

Floats = NDArray[np.float64]

_IN_MEMORY = 1 << 24
"""Numbers in memory while pulls are summed; runs are processed in groups that fit."""


@dataclass(frozen=True)
class PullBounds:
    """For every candidate k and every example, a high-probability bound on the mean of F, and F's Lipschitz constant.

    Args:
        grid: the candidate k, increasing.
        upper: [len(grid), n] bounds F̄.
        lipschitz: [len(grid), n] constants K.
        chance: the failure probability of a single bound.
        weights: [d, C], the weights of one of the runs.
    """

    grid: NDArray[np.int64]
    upper: Floats
    lipschitz: Floats
    chance: float
    weights: Floats

    def certified(self, bound: PathBound, epsilon: float, worst: float) -> tuple[Floats, Floats]:
        """k and ε of every example; the worst case where no k of the grid is certified."""
        reached = np.stack(
            [bound.threshold(K, epsilon) >= F for F, K in zip(self.upper, self.lipschitz, strict=True)]
        )
        certified, at = reached.any(axis=0), reached.argmax(axis=0)
        columns = np.arange(reached.shape[1])
        k = np.where(certified, self.grid[at].astype(np.float64), worst)
        smallest = np.minimum(bound.epsilon(self.upper[at, columns], self.lipschitz[at, columns]), epsilon)
        return np.minimum(k, worst), np.where(certified & (k <= worst), smallest, epsilon)

    def pull(self, k: float, position: int) -> float:
        """F̄ of an example at the largest k of the grid that is at most this one; a certified k is on the grid."""
        at = int(np.searchsorted(self.grid, k, side="right")) - 1
        return float(self.upper[at, position])


def bound_pulls(
    descent: Descent, worst: float, *, runs: int, failure: float, simultaneous: bool, rng: np.random.Generator
) -> PullBounds:
    """Compute the pulls of every example over R runs."""
    problem, steps = descent.problem, descent.dynamics.steps or 0
    grid = step_grid(worst)
    schedules = [Absorption(descent.dynamics.contraction, steps, int(k)) for k in grid]
    means, weights = mean_pulls(descent, schedules, runs, rng)
    lipschitz = np.outer([schedule.amplification for schedule in schedules], deviation_lipschitz(descent))
    chance = failure / (len(problem) * len(grid)) if simultaneous else failure
    upper = means + lipschitz * np.sqrt(2 * np.log(1 / chance) / runs)
    return PullBounds(grid, upper, lipschitz, chance, weights)


def step_grid(worst: float, most: int = 32) -> NDArray[np.int64]:
    """The candidate k: half spaced geometrically, half evenly, up to the worst case or 10,000."""
    top = int(min(worst, 10_000))
    candidates = np.concatenate([np.geomspace(1, max(top, 1), most // 2), np.linspace(0, top, most // 2)])
    return np.unique(np.minimum(np.round(candidates), top).astype(np.int64))


def deviation_lipschitz(descent: Descent) -> Floats:
    """The Lipschitz constant of each example's e_t in the weights: η(‖x‖²/4 + L)/(n − 1)."""
    own = np.square(descent.problem.features).sum(axis=1) / 4
    scale = descent.dynamics.learning_rate / (len(descent.problem) - 1)
    return np.asarray(scale * (own + descent.problem.smoothness()))


def mean_pulls(
    descent: Descent, schedules: list[Absorption], runs: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The mean of F over runs, [schedules, n], and one run's weights [d, C]."""
    n, outputs, steps = len(descent.problem), descent.problem.outputs, schedules[0].steps
    group = max(1, min(runs, _IN_MEMORY // (2 * n * outputs * len(schedules))))
    total, weights = np.zeros((len(schedules), n)), np.zeros((0, 0))
    for start in range(0, runs, group):
        size = min(group, runs - start)
        pulls = [Pulls.start(schedule, (n, size * outputs)) for schedule in schedules]
        scratch = np.empty((n, size * outputs))
        for t, (columns, shift) in enumerate(descent.deviations(steps, size, rng)):
            weights = columns[:, :outputs]
            for running in pulls:
                running.add(t, shift, scratch)
        for i, running in enumerate(pulls):
            by_run = running.finish().reshape(n, size, outputs).sum(axis=2)
            total[i] += np.sqrt(by_run / descent.dynamics.variance).sum(axis=1)
    return total / runs, weights
