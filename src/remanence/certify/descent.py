"""Noisy gradient descent on logistic regression, many runs in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from remanence.certify.problem import Problem
from remanence.theory.langevin import Langevin

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GradientPass:
    """Residuals and mean gradient of all examples at some weights."""

    residuals: Floats
    """[n, columns]: the derivative of each example's loss with respect to its output."""
    mean: Floats
    """[d, columns]: the mean gradient, without the regularizer."""


@dataclass(frozen=True)
class Descent:
    """w′ = w − η(mean gradient + m w) + √(2ησ²) ξ on a problem, from w = 0.

    Columns of weights are runs times outputs, run by run; signs are repeated for every run.
    """

    problem: Problem
    dynamics: Langevin

    def gradients(self, weights: Floats, signs: Floats) -> GradientPass:
        x = self.problem.features
        residuals = -signs * expit(-signs * (x @ weights))
        return GradientPass(residuals, x.T @ residuals / len(x))

    def step(self, weights: Floats, mean: Floats, noise: Floats | None) -> Floats:
        """One step from a mean gradient; without noise if None."""
        eta, m = self.dynamics.learning_rate, self.dynamics.strong_convexity
        moved = weights - eta * (mean + m * weights)
        return moved if noise is None else moved + np.sqrt(self.dynamics.variance) * noise

    def run(self, steps: int, columns: Floats, start: Floats, rng: np.random.Generator | None) -> Floats:
        """The weights after this many steps; `columns` are the signs, [n, columns]."""
        weights = start
        for _ in range(steps):
            noise = None if rng is None else rng.normal(size=weights.shape)
            weights = self.step(weights, self.gradients(weights, columns).mean, noise)
        return weights

    def deviations(self, steps: int, runs: int, rng: np.random.Generator) -> Iterator[tuple[Floats, Floats]]:
        """At every step of R runs the weights, and each example's e_t = η‖g_x − ḡ‖/(n − 1) by column."""
        x, n = self.problem.features, len(self.problem)
        signs = np.tile(self.problem.signs, runs)
        squares = np.square(x).sum(axis=1)[:, None]
        weights = np.zeros((x.shape[1], signs.shape[1]))
        for _ in range(steps):
            gradients = self.gradients(weights, signs)
            squared_distance = gradients.residuals * (
                gradients.residuals * squares - 2 * (x @ gradients.mean)
            )
            squared_distance += np.square(gradients.mean).sum(axis=0)
            yield weights, self.dynamics.learning_rate / (n - 1) * np.sqrt(np.maximum(squared_distance, 0.0))
            weights = self.step(weights, gradients.mean, rng.normal(size=weights.shape))

    def without(self, position: int) -> Descent:
        """The same descent on the data without one example."""
        kept = np.arange(len(self.problem)) != position
        rest = self.problem
        smaller = replace(rest, ids=rest.ids[kept], features=rest.features[kept], signs=rest.signs[kept])
        return Descent(smaller, self.dynamics)
