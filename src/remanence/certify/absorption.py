"""How the noise of each step absorbs the trace of one example: the coupling behind the certificate."""

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
    v_t = c z_t + e_t is how far they may be apart and z_{t+1} = (1 − κ_t) v_t what is left; κ = 1 at the last
    step, so that they end together. The pulls are all that tells Y from retraining. κ is the best for
    constant e_t, and valid for any.
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
        kappa, left = np.empty(horizon), 0.0
        for t in range(horizon):
            apart = c * left + (t < total)
            kappa[t] = min(pulls[t] / apart, 1.0) if apart > 0 else 1.0
            left = (1 - kappa[t]) * apart
        kappa[-1] = 1.0
        return kappa

    @cached_property
    def tail(self) -> float:
        """Σ of the squared pulls after training, for every unit left at its end."""
        left, total = 1.0, 0.0
        for kappa in self.kappa[self.steps :]:
            total += (kappa * self.contraction * left) ** 2
            left *= self.contraction * (1 - kappa)
        return total

    @cached_property
    def amplification(self) -> float:
        """‖Γ Toeplitz(c)‖: how far the pulls can move for a unit of noise, for every unit of e's Lipschitz constant.

        Γ takes e to the pulls; the Toeplitz matrix takes the noise of steps before t to the weights at t. The
        pulls after training are all multiples of what is left, so one row stands for them.
        """
        c, total = self.contraction, self.steps
        rows, left = np.zeros((total + 1, total)), np.zeros(total)
        moved = np.zeros(total)
        for t in range(total):
            apart = c * left + moved
            rows[t], left = self.kappa[t] * apart, (1 - self.kappa[t]) * apart
            moved = c * moved
            moved[t] = 1.0
        rows[total] = np.sqrt(self.tail) * left
        return _norm_bound(rows)


def _norm_bound(matrix: Floats) -> float:
    """A bound on the spectral norm of a matrix without negative entries, tight to about 1e-6, by Schur's test.

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
    left: Floats
    squares: Floats

    @classmethod
    def start(cls, schedule: Absorption, shape: tuple[int, int]) -> Pulls:
        """Before the first step."""
        return cls(schedule, np.zeros(shape), np.zeros(shape))

    def add(self, t: int, shift: Floats, scratch: Floats) -> None:
        """Step t of training, whose shift is e_t."""
        kappa = self.schedule.kappa[t]
        self.left *= self.schedule.contraction
        self.left += shift
        np.multiply(self.left, kappa, out=scratch)
        np.square(scratch, out=scratch)
        self.squares += scratch
        self.left *= 1 - kappa

    def finish(self) -> Floats:
        """Σ a_t² over training and unlearning."""
        return self.squares + self.schedule.tail * np.square(self.left)
