"""The law of the theory: the steps to unlearn grow with the logarithm of the privacy loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from remanence.errors import InputError

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
    law = _least_deviations(P, k)
    for _ in range(_ROUNDS if censored.any() else 0):
        filled = np.where(censored, np.maximum(k, law(P)), k)
        previous, law = law, _least_deviations(P, filled)
        if law == previous:
            break
    return law


def _least_deviations(P: NDArray[np.float64], k: NDArray[np.float64]) -> UnlearningLaw:
    weights = np.ones_like(k)
    least = max(1.0, 0.02 * float(k.max()))
    for _ in range(_REWEIGHTED):
        law = _least_squares(P, k, weights)
        weights = least / np.maximum(np.abs(law(P) - k), least)
    return law


def _least_squares(
    P: NDArray[np.float64], k: NDArray[np.float64], weights: NDArray[np.float64]
) -> UnlearningLaw:
    positive = P[P > _NOTHING]
    if positive.size == 0 or not k.any():
        return UnlearningLaw(float(weights @ k / weights.sum()), 0.0, float(np.e))
    b = np.linspace(np.log(1e-2) - np.log(positive.max()), np.log(1e4) - np.log(positive.min()), _GRID[0])
    c = np.linspace(np.log(1e-6), np.log(1e6), _GRID[1])
    i, j = _best(P, k, weights, b, c)
    for _ in range(2):
        b = np.linspace(b[max(i - 1, 0)], b[min(i + 1, b.size - 1)], _GRID[0])
        c = np.linspace(c[max(j - 1, 0)], c[min(j + 1, c.size - 1)], _GRID[1])
        i, j = _best(P, k, weights, b, c)
    B, C = float(np.exp(b[i])), 1 + float(np.exp(c[j]))
    shape = np.log(B * P + C)
    A = float((weights * shape) @ k) / float((weights * shape) @ shape)
    return UnlearningLaw(max(0.0, A), B, C)


def _best(
    P: NDArray[np.float64],
    k: NDArray[np.float64],
    weights: NDArray[np.float64],
    b: NDArray[np.float64],
    c: NDArray[np.float64],
) -> tuple[int, int]:
    """The grid point of log B and log(C − 1) with the least squares, using the best A."""
    shape = np.log(np.exp(b)[:, None, None] * P + (1 + np.exp(c))[None, :, None])
    A = np.maximum(0.0, shape @ (weights * k) / (np.square(shape) @ weights))
    errors = np.square(A[..., None] * shape - k) @ weights
    i, j = np.unravel_index(int(errors.argmin()), errors.shape)
    return int(i), int(j)
