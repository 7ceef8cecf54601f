"""Bounds that hold for any example: the published worst case, and the cost of the T-step target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from remanence.errors import InputError
from remanence.theory.convergence import Converted
from remanence.theory.langevin import Langevin
from remanence.theory.sampled_gaussian import check_alpha
from remanence.types import Status, check_positive


def published_worst_case(
    dynamics: Langevin, *, lipschitz: float, n: int, delta: float, group: int = 1
) -> Converted:
    """The published worst case for any `group` examples of n: a route to (ε, δ).

    Statement:
        D_α(k) ≤ e^{−kηm/α} · 4α S² M² / (m σ² n²).

    Symbols: `lipschitz` = M, `group` = S, `dynamics` = η, m, σ.

    Assumptions: m-strongly convex, M-Lipschitz loss; S examples are replaced, not removed.

    Departs from the paper: it is what the paper builds on. A further factor 1 − e^{−mηT} could not be checked
        against the cited text and is left out, which is never smaller.

    Source: Chien et al. 2024, Theorems 3.2 and 3.3.

    Checked by: tests/oracles/test_theory_convergence.py
    """
    check_positive("lipschitz", lipschitz)
    check_positive("n", n)
    if dynamics.loss != "strongly convex":
        raise InputError(f"The published worst case needs a strongly convex loss; got {dynamics.loss!r}.")
    rate = dynamics.learning_rate * dynamics.strong_convexity
    start = 4 * (group * lipschitz / (dynamics.sigma * n)) ** 2 / dynamics.strong_convexity
    return Converted(lambda alpha: _Published(alpha, float(start), rate), delta)


@dataclass(frozen=True)
class _Published:
    alpha: float
    start: float
    rate: float
    formula: ClassVar[str] = "published worst case (log-Sobolev)"
    furthest: ClassVar[int] = 1 << 60
    status: ClassVar[Status] = Status.CERTIFICATE
    assumptions: ClassVar[tuple[str, ...]] = ("Strongly convex, Lipschitz loss; replacement of examples.",)

    def epsilon(self, k: int) -> float:
        return float(self.alpha * self.start * np.exp(-k * self.rate / self.alpha))


def horizon_gap(dynamics: Langevin, *, alpha: float) -> float:
    """D_α between T + k and T steps of retraining, either way, for any k: the cost of the T-step target.

    Statement:
        α (2R)² c^{2T} (1 − c²) / (2 · 2ησ² (1 − c^{2T})).

    Symbols: R = `dynamics.radius`, c = `dynamics.contraction`, T = `dynamics.steps`.

    Assumptions: strongly convex loss, projection onto a ball of radius R.

    Departs from the paper: its ε_{2α−1} and ε_{4α−1} are left open; this bounds them.

    Source: shifted divergence, Feldman et al. 2018; Altschuler and Talwar 2022.

    Checked by: tests/oracles/test_theory_convergence.py
    """
    check_alpha(alpha)
    if dynamics.loss != "strongly convex" or dynamics.radius is None or dynamics.steps is None:
        raise InputError(
            "`dynamics` must be strongly convex and have `radius` and `steps`; one of them is missing."
        )
    c_sq, total = dynamics.contraction**2, dynamics.steps
    remaining = c_sq**total * (1 - c_sq) / (1 - c_sq**total)
    return float(alpha * (2 * dynamics.radius) ** 2 * remaining / (2 * dynamics.variance))
