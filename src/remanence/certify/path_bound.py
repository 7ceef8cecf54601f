"""From the mean pull of R runs to a certified Rényi divergence, and to (ε, δ)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.theory.conversion import renyi_budget

Floats = NDArray[np.float64]

_ALPHAS = 1 + np.geomspace(0.05, 2000, 60)
_EXPONENTS = np.array([1.05, 1.1, 1.2, 1.35, 1.5, 2, 3, 5, 10, 30, 100, 1000])


@dataclass(frozen=True)
class PathBound:
    """D_α of unlearning towards retraining, from a high-probability bound on the mean of F.

    Statement:
        D_α ≤ 1/(p(α−1)) [ −½ ln(1 − 2λK²) + λ F̄²/(1 − 2λK²) ],  λ = p(α−1)a′/2,
        a′ = 1 + (α−1) p/(p−1),  2λK² < 1;  F² = Σ_t a_t²/(2ησ²) and F̄ ≥ E F.

    Symbols: `mean` = F̄, `lipschitz` = K, the Lipschitz constant of F in the noise.

    Assumptions: strongly convex, smooth loss; full-batch noisy gradient descent; F̄ bounds the mean of F, with
        probability 1 − β for F̄ = mean over R runs + K √(2 ln(1/β)/R).

    Departs from the paper: the divergence after T steps is not composed over steps; the coupling of
        `Absorption` uses the contraction of training as well as of unlearning, for each example's own gradients.

    Source: new here; path-wise Hölder (docs/theory/certificate.md), shifted divergence, Gaussian concentration.

    Checked by: tests/oracles/test_theory_certificate.py
    """

    delta: float

    def threshold(self, lipschitz: Floats, epsilon: float) -> Floats:
        """The largest F̄ that gives (ε, δ) at each K; negative if none does."""
        best = np.full(lipschitz.shape, -1.0)
        for alpha in _ALPHAS:
            budget = renyi_budget(epsilon, self.delta, float(alpha))
            if budget <= 0:
                continue
            for p in _EXPONENTS:
                lam = _lambda(alpha, p)
                room = 1 - 2 * lam * lipschitz**2
                positive = np.maximum(room, 1e-300)
                square = (p * (alpha - 1) * budget + 0.5 * np.log(positive)) * positive / lam
                best = np.maximum(best, np.where(room > 0, square, -1.0))
        return np.asarray(np.where(best > 0, np.sqrt(np.maximum(best, 0.0)), -1.0))

    def epsilon(self, mean: Floats, lipschitz: Floats) -> Floats:
        """The smallest ε at δ for each F̄ and K."""
        best = np.full(np.broadcast(mean, lipschitz).shape, np.inf)
        for alpha in _ALPHAS:
            offset = renyi_budget(0.0, self.delta, float(alpha))
            for p in _EXPONENTS:
                lam = _lambda(alpha, p)
                room = 1 - 2 * lam * lipschitz**2
                positive = np.maximum(room, 1e-300)
                with np.errstate(over="ignore"):  # the value is not used where `room` is not positive
                    divergence = (-0.5 * np.log(positive) + lam * mean**2 / positive) / (p * (alpha - 1))
                best = np.minimum(best, np.where(room > 0, divergence - offset, np.inf))
        return np.asarray(np.maximum(best, 0.0))


def _lambda(alpha: float, p: float) -> float:
    return float(p * (alpha - 1) * (1 + (alpha - 1) * p / (p - 1)) / 2)
