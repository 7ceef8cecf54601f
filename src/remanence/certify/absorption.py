"""How the noise of each step absorbs the influence of one example: the coupling behind the certificate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Absorption:
    """The schedule κ for T training and k unlearning steps under contraction c.

    A chain Y starts with the trained chain X and is pulled towards it by a_t = κ_t v_t at every step, where
    v_t = c z_t + e_t is the largest possible distance and z_{t+1} = (1 − κ_t) v_t what remains; κ = 1 at the last
    step, so that they end together. Only the pulls distinguish Y from retraining. κ is optimal for constant e_t, and
    valid for any.
    """

    contraction: float
    steps: int
    unlearning: int

    @cached_property
    def kappa(self) -> Floats:
        """κ_t for t = 0..T+k−1."""
        c, total, horizon = self.contraction, self.steps, self.steps + self.unlearning
        powers = c ** np.arange(horizon - 1, -1, -1.0)
        pulls = powers * powers[:total].sum() / np.square(powers).sum()
        kappa, remaining = np.empty(horizon), 0.0
        for t in range(horizon):
            distance = c * remaining + (t < total)
            kappa[t] = min(pulls[t] / distance, 1.0) if distance > 0 else 1.0
            remaining = (1 - kappa[t]) * distance
        kappa[-1] = 1.0
        return kappa

    @cached_property
    def tail(self) -> float:
        """Σ of the squared pulls after training, per unit of distance at its end."""
        remaining, total = 1.0, 0.0
        for kappa in self.kappa[self.steps :]:
            total += (kappa * self.contraction * remaining) ** 2
            remaining *= self.contraction * (1 - kappa)
        return total

    @cached_property
    def amplification(self) -> float:
        """‖Γ Toeplitz(c)‖: the change of the pulls per unit of noise and per unit of e's Lipschitz constant.

        Γ maps e to the pulls; the Toeplitz matrix maps the noise of steps before t to the weights at t. The
        pulls after training are all multiples of the remaining distance, so one row represents them.
        """
        c, total = self.contraction, self.steps
        rows, remaining = np.zeros((total + 1, total)), np.zeros(total)
        response = np.zeros(total)
        for t in range(total):
            distance = c * remaining + response
            rows[t], remaining = self.kappa[t] * distance, (1 - self.kappa[t]) * distance
            response = c * response
            response[t] = 1.0
        rows[total] = np.sqrt(self.tail) * remaining
        return _norm_bound(rows)


def _norm_bound(matrix: Floats) -> float:
    """A bound on the spectral norm of a nonnegative matrix, tight to about 1e-6, by Schur's test.

    For any positive p and q, ‖M‖² ≤ max(Mp/q) · max(M′q/p); the singular vectors would make it an equality.
    """
    p = np.ones(matrix.shape[1])
    for _ in range(200):
        p = matrix.T @ (matrix @ p)
        p /= p.max() or 1.0
    p = np.maximum(p, 1e-9)
    q = matrix @ p
    q = np.maximum(q, 1e-9 * (q.max() or 1.0))
    return float(np.sqrt((matrix @ p / q).max() * (matrix.T @ q / p).max()) * (1 + 1e-12))


@dataclass
class Pulls:
    """The running sum of squared pulls of every example and column, for one schedule."""

    schedule: Absorption
    remaining: Floats
    squares: Floats

    @classmethod
    def start(cls, schedule: Absorption, shape: tuple[int, int]) -> Pulls:
        return cls(schedule, np.zeros(shape), np.zeros(shape))

    def add(self, t: int, shift: Floats, scratch: Floats) -> None:
        """Add step t of training, whose shift is e_t."""
        kappa = self.schedule.kappa[t]
        self.remaining *= self.schedule.contraction
        self.remaining += shift
        np.multiply(self.remaining, kappa, out=scratch)
        np.square(scratch, out=scratch)
        self.squares += scratch
        self.remaining *= 1 - kappa

    def finish(self) -> Floats:
        """Σ a_t² over training and unlearning."""
        return self.squares + self.schedule.tail * np.square(self.remaining)
