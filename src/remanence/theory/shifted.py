"""Routes that bound a distance instead of a divergence: shifted divergence and hockey stick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from remanence.errors import InputError
from remanence.theory.convergence import inherited, status_of, value_of
from remanence.theory.conversion import check_delta, gaussian_delta_unchecked, gaussian_epsilon
from remanence.theory.langevin import Langevin
from remanence.types import Bound, Status, check_positive


@dataclass(frozen=True)
class Shifted:
    """The tightest worst case: shifts are absorbed by the noise of the steps, as one Gaussian test.

    Statement:
        retraining and unlearning are μ_k-GDP apart, D_α = α μ_k²/2, with
        μ_k² = c^{2k} Z_T² (1 − c²) / (2ησ² (1 − c^{2(T+k)})),  Z_T = e (1 − c^T)/(1 − c);
        with `distance` = Z instead of a shift per step: μ_k² = c^{2k} Z² (1 − c²) / (2ησ² (1 − c^{2k})).

    Symbols: `shift` = e = ηΔ/n, the largest difference of one training step on D and one on D′ at the same
        weights; c = `dynamics.contraction`.

    Assumptions: convex or strongly convex loss; the target is retraining for T + k steps.

    Departs from the paper: it uses log-Sobolev constants, which this route dominates.

    Source: Feldman et al. 2018; Altschuler and Talwar 2022; Bok, Su and Altschuler 2024.

    Checked by: tests/oracles/test_theory_convergence.py
    """

    dynamics: Langevin
    delta: float
    shift: float | None = None
    distance: float | None = None
    formula: ClassVar[str] = "shifted divergence (Gaussian)"
    furthest: ClassVar[int] = 1 << 60
    status: ClassVar[Status] = Status.CERTIFICATE

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if self.dynamics.loss == "bounded":
            raise InputError(
                "The shifted divergence needs a convex loss; got 'bounded'. Use the hockey stick."
            )
        if (self.shift is None) == (self.distance is None):
            raise InputError("Exactly one of `shift` and `distance` must be given.")
        check_positive("shift or distance", self.shift if self.shift is not None else self.distance or 0.0)

    @property
    def assumptions(self) -> tuple[str, ...]:
        source = "shift of one step" if self.shift is not None else "distance after training"
        return (
            f"A {self.dynamics.loss} loss; the {source} bounds every pair of data sets compared.",
            f"(ε, δ) towards retraining for T + k steps, δ = {self.delta:g}.",
        )

    def mu(self, k: int) -> float:
        total = self.dynamics.steps
        if self.distance is not None:
            absorbed = self._powers(k)
            return float(self.distance * self._c**k / np.sqrt(absorbed)) if k else np.inf
        assert self.shift is not None
        reach = np.inf if total is None else float(total)
        drift = reach if self._c == 1 else -np.expm1(reach * np.log(self._c)) / (1 - self._c)
        return float(self.shift * drift * self._c**k / np.sqrt(self._powers(reach + k)))

    def epsilon(self, k: int) -> float:
        mu = self.mu(k)
        return gaussian_epsilon(mu, self.delta) if mu < 1e3 else float("inf")

    @property
    def _c(self) -> float:
        return self.dynamics.contraction

    def _powers(self, steps: float) -> float:
        """Variance 2ησ² (1 + c² + … + c^{2(steps−1)})."""
        c_sq = self._c**2
        terms = steps if c_sq == 1 else -np.expm1(steps * np.log(c_sq)) / (1 - c_sq)
        return float(self.dynamics.variance * terms)


@dataclass(frozen=True)
class HockeyStick:
    """For losses that are only bounded: δ at fixed ε shrinks by the overlap of the noise.

    Statement:
        δ_{j+1} = δ_j θ(ln(1 + (e^ε − 1)/δ_j)),  θ(e) = Q(e/r − r/2) − e^e Q(e/r + r/2),
        r = 2(R + ηM)/√(2ησ²),  δ_0 = `start` for ε ≥ `start_epsilon`, 1 below.

    Symbols: Q = the normal tail, R = `dynamics.radius`, M = `dynamics.lipschitz`; `start` = δ before unlearning at
        `start_epsilon`. At a smaller ε that δ is larger, by an unknown amount, so `start` is not used there; a total
        variation distance is the δ at ε = 0 and holds for every ε.

    Assumptions: projection onto a ball of radius R before each step, gradients up to M; no convexity.

    Departs from the paper: its constant for such losses is astronomically small; this one is only small.

    Source: as in the public code of Koloskova et al. 2025; Balle et al. 2019 for the contraction.

    Checked by: tests/oracles/test_theory_convergence.py
    """

    dynamics: Langevin
    delta: float
    start: Bound | float = 1.0
    start_epsilon: float | None = None
    formula: ClassVar[str] = "hockey-stick contraction"
    furthest: ClassVar[int] = 1 << 20

    def __post_init__(self) -> None:
        check_delta(self.delta)
        start = value_of(self.start)
        if not 0 < start <= 1:
            raise InputError(f"`start` must be a probability above 0; got {start}.")
        if start < 1 and self.start_epsilon is None:
            raise InputError(
                "`start_epsilon` must be given with `start`: the ε at which that δ holds, 0 for a total variation "
                "distance."
            )
        if self.start_epsilon is not None and not self.start_epsilon >= 0:
            raise InputError(f"`start_epsilon` must not be negative or NaN; got {self.start_epsilon}.")
        if self.dynamics.radius is None or self.dynamics.lipschitz is None:
            raise InputError(
                "`dynamics` must have `radius` and `lipschitz` for the hockey stick; one is missing."
            )

    @property
    def status(self) -> Status:
        return Status.CERTIFICATE if value_of(self.start) == 1 else status_of(self.start)

    @property
    def assumptions(self) -> tuple[str, ...]:
        given = () if value_of(self.start) == 1 else inherited(self.start, "δ before unlearning")
        return (
            *given,
            "Projection onto the ball before every step, gradients up to `lipschitz`; no convexity.",
        )

    def delta_after(self, k: int, epsilon: float) -> float:
        """δ at ε after k steps; stops early once it is below `delta`."""
        dynamics = self.dynamics
        assert dynamics.radius is not None
        assert dynamics.lipschitz is not None
        reach = dynamics.radius + dynamics.learning_rate * dynamics.lipschitz
        r = 2 * reach / np.sqrt(dynamics.variance)
        delta = value_of(self.start) if epsilon >= (self.start_epsilon or 0.0) else 1.0
        for _ in range(k):
            if delta <= self.delta:
                break
            shrunk = delta * gaussian_delta_unchecked(r, np.log1p(np.expm1(epsilon) / delta))
            if shrunk >= delta * (1 - 1e-12):
                break
            delta = shrunk
        return float(delta)

    def epsilon(self, k: int) -> float:
        """The smallest ε at which δ is reached after k steps, to 1e-6; infinite if it is above 50."""
        if self.delta_after(k, 50.0) > self.delta:
            return float("inf")
        low, high = 0.0, 50.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta_after(k, middle) <= self.delta else (middle, high)
        return high
