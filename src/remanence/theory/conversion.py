"""From Rényi divergences and Gaussian shifts to (ε, δ), and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr

from remanence.errors import InputError
from remanence.theory.sampled_gaussian import Floats, check_alpha, check_exponent

ORDERS = tuple(float(a) for a in 1 + np.geomspace(1e-2, 1e4, 600))
"""Default orders among which the best is chosen."""

Divergence = Callable[[float], float]
"""A Rényi bound as a function of its order."""


def renyi_to_epsilon(orders: ArrayLike, divergences: ArrayLike, delta: float) -> tuple[float, float]:
    """The smallest ε for δ that Rényi bounds at these orders give, and the order that gives it.

    Statement:
        ε = min_a D_a + ln((a − 1)/a) − (ln δ + ln a)/(a − 1), not below 0.

    Symbols: `orders` = a, `divergences` = D_a, `delta` = δ.

    Assumptions: one direction only: P(E) ≤ e^ε Q(E) + δ for every event, from D_a(P ‖ Q).

    Departs from the paper: it cites Mironov's conversion, D_a + ln(1/δ)/(a − 1), which is never smaller.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12; Balle et al. 2020.

    Checked by: tests/oracles/test_theory_conversion.py
    """
    a, divergence = _checked(orders, divergences)
    check_delta(delta)
    epsilon = divergence + np.log1p(-1 / a) - (np.log(delta) + np.log(a)) / (a - 1)
    best = int(np.argmin(epsilon))
    return max(float(epsilon[best]), 0.0), float(a[best])


def renyi_to_delta(orders: ArrayLike, divergences: ArrayLike, epsilon: float) -> tuple[float, float]:
    """The smallest δ for ε by the same inequality, and the order that gives it."""
    a, divergence = _checked(orders, divergences)
    _check_epsilon(epsilon)
    log_delta = (a - 1) * (divergence + np.log1p(-1 / a) - epsilon) - np.log(a)
    best = int(np.argmin(log_delta))
    return float(np.exp(min(log_delta[best], 0.0))), float(a[best])


def renyi_budget(epsilon: float, delta: float, order: float) -> float:
    """The largest D_a that gives (ε, δ) at this order; negative where none does."""
    check_alpha(order, "order")
    check_delta(delta)
    return float(epsilon - np.log1p(-1 / order) + (np.log(delta) + np.log(order)) / (order - 1))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The exact δ of two unit Gaussians a distance μ apart.

    Statement:
        δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

    Symbols: `mu` = μ, `epsilon` = ε.

    Assumptions: the pair is N(0, 1), N(μ, 1), or is dominated by it (μ-GDP).

    Departs from the paper: it has no Gaussian route.

    Source: Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022.

    Checked by: tests/oracles/test_theory_conversion.py
    """
    _check_epsilon(epsilon)
    if not (np.isfinite(mu) and mu >= 0):
        raise InputError(f"`mu` must be finite and not negative; got {mu}.")
    return 0.0 if mu == 0 else gaussian_delta_unchecked(mu, epsilon)


def gaussian_delta_unchecked(mu: float, epsilon: float) -> float:
    """`gaussian_delta` for μ > 0, for use in loops."""
    first = log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(np.exp(first) * -np.expm1(min(second - first, 0.0)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε at which `gaussian_delta` is δ; 0 if it is at most δ already there."""
    check_delta(delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    return float(
        brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, high, xtol=1e-12, rtol=1e-13)
    )


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ that still gives (ε, δ)."""
    _check_epsilon(epsilon)
    check_delta(delta)
    high = 1.0
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    return float(brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 0.0, high, xtol=1e-14, rtol=1e-13))


def weak_triangle(alpha: float, first: Divergence, second: Divergence, *, p: float | None = None) -> float:
    """D_α(P ‖ Q) through a law M between them.

    Statement:
        D_α(P ‖ Q) ≤ (α − 1/p)/(α − 1) D_{pα}(P ‖ M) + D_{q(α − 1/p)}(M ‖ Q),  1/p + 1/q = 1.

    Symbols: `first` = order ↦ D(P ‖ M), `second` = order ↦ D(M ‖ Q), `p` = p; the best of a grid if None.

    Assumptions: none.

    Departs from the paper: it fixes p = 2.

    Source: Mironov 2017, Proposition 11.

    Checked by: tests/oracles/test_theory_conversion.py
    """
    check_alpha(alpha)
    if p is not None:
        check_exponent(p)
    exponents = np.concatenate([1 + np.geomspace(0.01, 100, 81), [2.0]]) if p is None else np.array([p])

    def bound(exponent: float) -> float:
        conjugate = exponent / (exponent - 1)
        inner = alpha - 1 / exponent
        return inner / (alpha - 1) * first(exponent * alpha) + second(conjugate * inner)

    return min(bound(float(exponent)) for exponent in exponents)


def check_delta(value: float) -> None:
    if not 0 < value < 1:
        raise InputError(
            f"`delta` must be between 0 and 1, both excluded; got {value}. A common choice is 1e-5."
        )


def _check_epsilon(value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise InputError(f"`epsilon` must be finite and not negative; got {value}.")


def _checked(orders: ArrayLike, divergences: ArrayLike) -> tuple[Floats, Floats]:
    a = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    divergence = np.atleast_1d(np.asarray(divergences, dtype=np.float64))
    if a.ndim != 1 or a.shape != divergence.shape or a.size == 0:
        raise InputError(
            f"`divergences` must hold one value per order, {a.shape}; got shape {divergence.shape}."
        )
    for order in a:
        check_alpha(float(order), "orders")
    if np.any(np.isnan(divergence)) or np.any(divergence < 0):
        raise InputError(f"`divergences` must not be negative or NaN; got {divergence.tolist()}.")
    return a, divergence
