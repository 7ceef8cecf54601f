"""Noisy gradient descent as a contraction: how fast two distributions approach each other under the same steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from remanence.errors import InputError
from remanence.types import check_choice, check_positive

Loss = Literal["strongly convex", "convex", "bounded"]


@dataclass(frozen=True)
class Langevin:
    """Projected noisy gradient descent, w′ = Π_R[w − η∇F(w) + √(2ησ²) ξ].

    Args:
        learning_rate: η.
        sigma: σ; each step adds noise of variance 2ησ² to each coordinate.
        smoothness: L, the Lipschitz constant of ∇F.
        strong_convexity: m > 0 for `strongly convex`.
        loss: the class of F: `strongly convex`, `convex`, or only `bounded` (to a ball of `radius`, with
            gradients up to `lipschitz`).
        steps: T, the steps of training before; None for a stationary chain.
        initial_variance: log-Sobolev constant of w_0's law: its variance if Gaussian, 0 for a fixed point; None if it
            is not known.
        radius: R of the projection.
        lipschitz: M, a bound on ‖∇F‖.
    """

    learning_rate: float
    sigma: float
    smoothness: float
    strong_convexity: float = 0.0
    loss: Loss = "strongly convex"
    steps: int | None = None
    initial_variance: float | None = None
    radius: float | None = None
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        for name in ("learning_rate", "sigma", "smoothness"):
            check_positive(name, getattr(self, name))
        for name in ("radius", "lipschitz"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_choice("loss", self.loss, ("strongly convex", "convex", "bounded"))
        if self.steps is not None and (self.steps < 1 or int(self.steps) != self.steps):
            raise InputError(f"`steps` must be a whole number of at least 1; got {self.steps}.")
        start = self.initial_variance
        if start is not None and not (np.isfinite(start) and start >= 0):
            raise InputError(
                f"`initial_variance` must be finite and not negative; got {self.initial_variance}."
            )
        if self.loss == "bounded":
            if self.radius is None or self.lipschitz is None:
                raise InputError("A bounded loss needs both `radius` and `lipschitz`; one or both are None.")
            return
        self._check_convex()

    def _check_convex(self) -> None:
        strong = self.strong_convexity if self.loss == "strongly convex" else 0.0
        if self.loss == "strongly convex" and not 0 < strong <= self.smoothness:
            raise InputError(
                f"`strong_convexity` must be above 0, at most {self.smoothness} (smoothness); got {strong}. "
                "Use loss='convex' where there is none."
            )
        if self.loss == "convex" and self.steps is None:
            raise InputError(
                "`steps` must be given for a convex loss, whose chain never becomes stationary; got None."
            )
        largest = 2 / (self.smoothness + strong)
        if self.learning_rate > largest * (1 + 1e-12):
            raise InputError(
                f"`learning_rate` must be at most 2 / (L + m) = {largest:.6g} for the step to contract; "
                f"got {self.learning_rate}."
            )

    @property
    def variance(self) -> float:
        """2ησ², the variance of the noise of one step."""
        return 2 * self.learning_rate * self.sigma**2

    @property
    def contraction(self) -> float:
        """The Lipschitz constant of one gradient step: 1 − ηm, 1, or 1 + ηL."""
        if self.loss == "strongly convex":
            return 1 - self.learning_rate * self.strong_convexity
        return 1.0 if self.loss == "convex" else 1 + self.learning_rate * self.smoothness

    def log_sobolev(self, steps: float) -> float:
        """A log-Sobolev constant of the law after this many steps.

        Convex: C_t = c^{2t} C_0 + 2ησ² (1 + c² + … + c^{2(t−1)}), which needs `initial_variance` for finite t.
        Bounded: 6(4τ² + 2ησ²) e^{4τ²/2ησ²} with τ = R + ηM, infinite where that overflows.
        """
        if self.loss == "bounded":
            with np.errstate(over="ignore"):
                return float(np.exp(self._log_bounded_constant()))
        c_sq = self.contraction**2
        if np.isinf(steps):
            return self.variance / (1 - c_sq)
        if self.initial_variance is None:
            raise InputError("`initial_variance` must be given for a chain of finitely many steps; got None.")
        terms = -np.expm1(steps * np.log(c_sq)) / (1 - c_sq) if 0 < c_sq < 1 else (steps if c_sq else 1.0)
        return float(c_sq**steps * self.initial_variance + self.variance * terms)

    def log_decay(self, k: float) -> float:
        """Σ_j R_j over k further steps: any Rényi divergence of order a decreases by the factor e^{−(Σ_j R_j)/a}.

        Statement:
            D_a(next ‖ next′) ≤ (1 + 2ησ²/(c² C_j))^{−1/a} D_a(now ‖ now′),  C_{j+1} = c² C_j + 2ησ²;
            the product telescopes to ln(C_{T+k}/C_T) − 2k ln c.

        Symbols: C_j = log-Sobolev constant of the second law, c = `contraction`.

        Assumptions: both laws pass through the same steps; C_T holds for the second. With `steps` None, T is unknown:
            the stationary constant is used, or, if the chain starts more spread than that, the initial one.

        Departs from the paper: its constant C per step is only said to exist; here it is computed.

        Source: Chien et al. 2024, Theorem 3.2; the telescoped form is new here.

        Checked by: tests/oracles/test_theory_convergence.py
        """
        if self.loss == "bounded":
            return k * float(np.exp(self.log_rate()))
        if self.contraction == 0:
            return np.inf if k else 0.0
        stationary = self.steps is None and self.log_sobolev(np.inf) >= (self.initial_variance or 0.0)
        if stationary:
            return -2 * k * float(np.log(self.contraction))
        passed = self.steps or 0
        start = self.log_sobolev(passed)
        return float(np.log(self.log_sobolev(passed + k) / start) - 2 * k * np.log(self.contraction))

    def log_rate(self) -> float:
        """ln R of one step of the stationary chain, finite also where R itself underflows."""
        if self.loss == "bounded":
            log_gain = np.log(self.variance) - 2 * np.log(self.contraction) - self._log_bounded_constant()
            return float(np.log(np.log1p(np.exp(log_gain))) if log_gain > -30 else log_gain)
        with np.errstate(divide="ignore"):
            return float(np.log(-2 * np.log(self.contraction)))

    def _log_bounded_constant(self) -> float:
        reach = (self.radius or 0.0) + self.learning_rate * (self.lipschitz or 0.0)
        spread = 4 * reach**2
        return float(np.log(6 * (spread + self.variance)) + spread / self.variance)
