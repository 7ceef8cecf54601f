"""The log-moment of the Poisson-subsampled Gaussian, from which every privacy loss is computed."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from remanence.errors import InputError
from remanence.theory.logspace import softplus
from remanence.theory.quadrature import exact_log_moment
from remanence.types import check_choice

Fractional = Literal["linear", "exact"]
Floats = NDArray[np.float64]

MOST_TERMS = 4096
"""Above this order the full-batch moment, which is never smaller, stands in for the binomial sum."""


def log_moment(
    order: float, sampling_rate: float, ratio: ArrayLike, *, fractional: Fractional = "linear"
) -> Floats:
    """ln A of one noisy step on a Poisson-sampled mini-batch, for every ratio at once.

    Statement:
        A_a(q, ρ) = E_z (1 − q + q e^{ρz − ρ²/2})^a = Σ_k C(a, k) (1 − q)^{a−k} q^k e^{ρ² k(k−1)/2},
        z standard normal, the sum for whole a; (a − 1) D_a(step with x ‖ step without x) ≤ ln A_a.

    Symbols: `order` = a, `sampling_rate` = q, `ratio` = ρ = ‖g‖ / (B s) with noise s on a mini-batch mean
        over the fixed denominator B, ‖g‖ / s with noise on the sum.

    Assumptions: Poisson sampling, fixed denominator, Gaussian noise. The reverse divergence is never larger.

    Departs from the paper: it rounds a fractional order up; here `linear` interpolates ln A between the
        neighboring whole orders, a bound because ln A is convex in a; `exact` integrates over z.
        A sampling rate of 1 and orders above 4096 use a(a − 1)ρ²/2, exact for the first, a bound for the
        second. The sum stays in log space; a value beyond the largest float is returned as infinity.

    Source: Mironov, Talwar and Zhang 2019 (the sum and the direction).

    Checked by: tests/oracles/test_theory_log_moment.py
    """
    _check_order(order)
    _check_rate(sampling_rate)
    check_choice("fractional", fractional, ("linear", "exact"))
    ratios = _as_ratios(ratio)
    whole = float(order).is_integer()
    if sampling_rate == 1 or order > MOST_TERMS:
        return full_batch(order, ratios)
    if whole:
        return _binomial(int(order), sampling_rate, ratios)
    if fractional == "exact":
        return exact_log_moment(order, sampling_rate, ratios)
    low = int(np.floor(order))
    share = order - low
    return (1 - share) * _binomial(low, sampling_rate, ratios) + share * _binomial(
        low + 1, sampling_rate, ratios
    )


def full_batch(order: float, ratios: Floats) -> Floats:
    """ln A where every step sees every example: a(a − 1)ρ²/2."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(order * (order - 1) / 2 * np.square(ratios))


def _binomial(order: int, rate: float, ratios: Floats) -> Floats:
    """The sum over k minus 1, which its terms k = 0, 1 and the weights add up to; softplus adds the 1 again."""
    if order < 2:
        return np.zeros_like(ratios)
    k = np.arange(2, order + 1, dtype=np.float64)
    log_weights = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    log_weights += k * np.log(rate) + (order - k) * np.log1p(-rate)
    pairs = k * (k - 1) / 2
    flat = ratios.reshape(-1)
    out = np.empty_like(flat)
    rows = max(1, _BLOCK // k.size)
    for start in range(0, flat.size, rows):
        block = flat[start : start + rows]
        with np.errstate(over="ignore"):
            plain = pairs[-1] * np.square(block) < _PLAIN
        plain &= bool(k.size <= _FEW and log_weights.min() > -_PLAIN)
        result = out[start : start + rows]
        result[plain] = _plain_sum(block[plain], np.exp(log_weights))
        result[~plain] = _log_sum(block[~plain], log_weights, pairs)
    return out.reshape(ratios.shape)


_BLOCK = 1 << 16
"""Terms in memory at a time: what fits in the second-level cache."""
_PLAIN = 600.0
"""Up to this exponent, and weights of its negative, neither a term nor their sum overflows or underflows."""
_FEW = 128
"""Up to this many terms the rounding errors of the recurrence stay below 1e-12."""


def _plain_sum(ratios: Floats, weights: Floats) -> Floats:
    """The sum in plain numbers, each e^{ρ² k(k−1)/2} − 1 computed from the last: a fifth of the time, as accurate.

    All terms are positive: with x = e^a − 1 and y = e^b − 1, e^{a+b} − 1 is x + y (1 + x).
    """
    step = np.expm1(np.square(ratios))
    factor, term = step.copy(), step.copy()  # e^{ρ²(k−1)} − 1 and e^{ρ² k(k−1)/2} − 1 at k = 2
    total = weights[0] * term
    for weight in weights[1:]:
        factor += step * (1 + factor)
        term += factor * (1 + term)
        total += weight * term
    return np.asarray(np.log1p(total))


def _log_sum(ratios: Floats, log_weights: Floats, pairs: Floats) -> Floats:
    """The same in logarithms, for numbers beyond the range of floats."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        exponents = pairs[:, None] * np.square(ratios)
        terms = -np.expm1(-exponents)
        np.log(terms, out=terms)
        terms += exponents
        terms += log_weights[:, None]
        top = terms.max(axis=0)
        terms -= top
        np.exp(terms, out=terms)
        total = np.log(terms.sum(axis=0)) + top
    # a ratio of 0 (or one whose square underflows) has a log-moment of 0; one beyond float range of infinity
    total = np.where(np.isneginf(top), -np.inf, np.where(np.isposinf(top), np.inf, total))
    return softplus(total)


def _as_ratios(ratio: ArrayLike) -> Floats:
    ratios = np.asarray(ratio, dtype=np.float64)
    bad = ~(np.isfinite(ratios) & (ratios >= 0))
    if bad.any():
        raise InputError(
            f"`ratio` must be finite and not negative; got {ratios[bad][0]}. "
            "It is the gradient norm divided by batch size times sigma."
        )
    return ratios


def _check_order(value: float) -> None:
    if not (np.isfinite(value) and value >= 1):
        raise InputError(f"`order` must be a finite number of at least 1; got {value}.")


def check_alpha(value: float, name: str = "alpha") -> None:
    """Raise for an order at which the Rényi divergence is not defined as used here."""
    if not (np.isfinite(value) and value > 1):
        raise InputError(f"`{name}` must be a finite number above 1; got {value}. The paper uses 8.")


def check_exponent(value: float) -> None:
    """Raise for a Hölder exponent p that is not above 1."""
    if not (np.isfinite(value) and value > 1):
        raise InputError(f"`p` must be a finite number above 1; got {value}.")


def _check_rate(value: float) -> None:
    if not 0 < value <= 1:
        raise InputError(
            f"`sampling_rate` must be in (0, 1]; got {value}. "
            "Did you pass the batch size? Use batch_size / len(train)."
        )
