"""The law of the theory: the steps to unlearn grow with the logarithm of the privacy loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from remanence.errors import InputError

Floats = NDArray[np.float64]
_GRID = (31, 13)
"""Grid points for log B and log(C − 1); the cells around the best point are refined twice."""
_ROUNDS = 12
_REWEIGHTED = 4
_NOTHING = 1e-200
"""Losses below this count as zero, because the grid cannot resolve them."""


@dataclass(frozen=True)
class UnlearningLaw:
    r"""Steps to unlearn as a function of the privacy loss.

    Statement: :math:`k(P) = A \ln(B P + C)`, with :math:`A, B \ge 0` and :math:`C \ge 1`, so that k is never
    negative and never decreases with P.

    Source: the paper's bounds on k, solved for k; A is one over the rate at which noisy training forgets, and
    B and C combine constants that are unknown outside the convex case, so they are fitted.
    """

    A: float
    B: float
    C: float

    def __call__(self, loss: ArrayLike) -> NDArray[np.float64]:
        """Steps at these privacy losses."""
        return self.A * np.log(self.B * np.asarray(loss, dtype=np.float64) + self.C)


def fit_law(losses: ArrayLike, steps: ArrayLike, reached: ArrayLike | None = None) -> UnlearningLaw:
    """Least absolute deviations over A, B and C, so that a single outlier has little effect on the law.

    Computed by iteratively reweighted least squares. For each B and C the best A has a closed form, and B and C are
    searched on a grid, so the result does not depend on a starting point.

    Args:
        losses: one privacy loss per forget set.
        steps: the steps it took, or after which the search ended.
        reached: whether the criterion was reached; all were by default. A set that did not reach it (censored) counts
            with the prediction of the law or with the steps given, whichever is larger.
    """
    P, k = np.asarray(losses, dtype=np.float64), np.asarray(steps, dtype=np.float64)
    if P.ndim != 1 or P.shape != k.shape or P.size < 3:
        raise InputError(f"A law needs at least three losses and as many steps; got {P.shape} and {k.shape}.")
    if not (np.isfinite(P).all() and np.isfinite(k).all() and (P >= 0).all() and (k >= 0).all()):
        raise InputError("Losses and steps must be finite and not negative.")
    censored = np.zeros(P.shape, bool) if reached is None else ~np.asarray(reached, dtype=bool)
    search = _GridSearch(P)
    law = _least_deviations(search, k)
    for _ in range(_ROUNDS if censored.any() else 0):
        filled = np.where(censored, np.maximum(k, law(P)), k)
        previous, law = law, _least_deviations(search, filled)
        if law == previous:
            break
    return law


def _least_deviations(search: _GridSearch, k: Floats) -> UnlearningLaw:
    weights = np.ones_like(k)
    least = max(1.0, 0.02 * float(k.max()))
    for _ in range(_REWEIGHTED):
        law = search.least_squares(k, weights)
        weights = least / np.maximum(np.abs(law(search.P) - k), least)
    return law


class _Grid:
    """Grid points of log B and log(C − 1), and ln(B P + C) at each of them."""

    def __init__(self, P: Floats, b: tuple[float, float], c: tuple[float, float]) -> None:
        self.b, self.c = np.linspace(*b, _GRID[0]), np.linspace(*c, _GRID[1])
        self._shape = np.log(np.exp(self.b)[:, None, None] * P + (1 + np.exp(self.c))[None, :, None])
        self._square = np.square(self._shape)

    def best(self, k: Floats, weights: Floats) -> tuple[int, int]:
        """The point with the least squares, using the best A."""
        A = np.maximum(0.0, self._shape @ (weights * k) / (self._square @ weights))
        residuals = A[..., None] * self._shape
        residuals -= k
        errors = np.square(residuals, out=residuals) @ weights
        i, j = np.unravel_index(int(errors.argmin()), errors.shape)
        return int(i), int(j)

    def around(self, i: int, j: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ends of the cells around a point."""
        b, c = self.b, self.c
        return (
            (b[max(i - 1, 0)], b[min(i + 1, b.size - 1)]),
            (c[max(j - 1, 0)], c[min(j + 1, c.size - 1)]),
        )


class _GridSearch:
    """Least squares for some losses. Rounds of reweighting ask for the same grids again, so these are kept."""

    def __init__(self, P: Floats) -> None:
        self.P = P
        self._grids: dict[tuple[tuple[float, float], tuple[float, float]], _Grid] = {}

    def _grid(self, b: tuple[float, float], c: tuple[float, float]) -> _Grid:
        if (b, c) not in self._grids:
            self._grids[b, c] = _Grid(self.P, b, c)
        return self._grids[b, c]

    def least_squares(self, k: Floats, weights: Floats) -> UnlearningLaw:
        positive = self.P[self.P > _NOTHING]
        if positive.size == 0 or not k.any():
            return UnlearningLaw(float(weights @ k / weights.sum()), 0.0, float(np.e))
        ends = np.log(1e-2) - np.log(positive.max()), np.log(1e4) - np.log(positive.min())
        grid = self._grid(ends, (np.log(1e-6), np.log(1e6)))
        i, j = grid.best(k, weights)
        for _ in range(2):
            grid = self._grid(*grid.around(i, j))
            i, j = grid.best(k, weights)
        B, C = float(np.exp(grid.b[i])), 1 + float(np.exp(grid.c[j]))
        shape = np.log(B * self.P + C)
        A = float((weights * shape) @ k) / float((weights * shape) @ shape)
        return UnlearningLaw(max(0.0, A), B, C)
