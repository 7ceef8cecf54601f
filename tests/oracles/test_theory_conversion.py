"""Conversions against dp_accounting, Opacus, closed forms and quadrature."""

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from opacus.accountants.analysis.rdp import get_privacy_spent
from scipy import integrate, stats

from remanence.errors import InputError
from remanence.theory.conversion import (
    ORDERS,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    renyi_budget,
    renyi_to_delta,
    renyi_to_epsilon,
    weak_triangle,
)

WHOLE = np.array([1.1, 1.5, 2, 3, 5, 8, 16, 32, 64, 128, 256, 1024, 4096], dtype=float)


@pytest.mark.parametrize("mu", [0.05, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-10])
def test_renyi_conversion_equals_two_accountants(mu, delta):
    divergences = WHOLE * mu**2 / 2
    ours, best = renyi_to_epsilon(WHOLE, divergences, delta)
    theirs, _ = compute_epsilon(WHOLE, divergences, delta)
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    spent, order = get_privacy_spent(orders=list(WHOLE), rdp=list(divergences), delta=delta)
    if spent > 0:
        assert (ours, best) == pytest.approx((spent, order), rel=1e-9)


def test_the_numbers_of_the_notes():
    assert gaussian_epsilon(0.2, 1e-5) == pytest.approx(0.7255, abs=5e-5)
    best, _ = renyi_to_epsilon(ORDERS, [a * 0.02 for a in ORDERS], 1e-5)
    assert best == pytest.approx(0.7944, abs=2e-4)
    mironov = min(a * 0.02 + np.log(1e5) / (a - 1) for a in ORDERS)
    assert mironov == pytest.approx(0.9799, abs=2e-4)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.1), (1.0, 0.0), (1.0, 2.0), (4.0, 1.0)])
def test_gaussian_delta_is_the_integral_of_the_excess(mu, epsilon):
    excess = lambda x: max(stats.norm.pdf(x - mu) - np.exp(epsilon) * stats.norm.pdf(x), 0.0)  # noqa: E731
    edge = epsilon / mu + mu / 2
    truth, _ = integrate.quad(excess, edge, edge + 12, epsabs=1e-14)
    assert gaussian_delta(mu, epsilon) == pytest.approx(truth, rel=1e-8)


def test_gaussian_functions_invert_each_other():
    for mu in (1e-3, 0.05, 0.7, 6.0):
        for delta in (1e-9, 1e-5):
            epsilon = gaussian_epsilon(mu, delta)
            if epsilon > 0:
                assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-8)
    assert gaussian_epsilon(1e-7, 1e-5) == 0
    assert gaussian_delta(0.0, 0.3) == 0


def test_delta_and_budget_invert_epsilon():
    divergences = WHOLE * 0.1
    epsilon, order = renyi_to_epsilon(WHOLE, divergences, 1e-6)
    delta, _ = renyi_to_delta(WHOLE, divergences, epsilon)
    assert delta == pytest.approx(1e-6, rel=1e-9)
    assert renyi_budget(epsilon, 1e-6, order) == pytest.approx(order * 0.1, rel=1e-9)


def test_gaussian_formula_is_never_above_the_renyi_one():
    for mu in (0.1, 1.0, 3.0):
        rdp, _ = renyi_to_epsilon(ORDERS, [a * mu**2 / 2 for a in ORDERS], 1e-5)
        assert gaussian_epsilon(mu, 1e-5) <= rdp


@pytest.mark.parametrize("alpha", [1.5, 2.0, 8.0])
def test_weak_triangle_holds_on_gaussians(alpha):
    # P = N(0,1), M = N(1,1), Q = N(3,1): exact divergences are half the order times the squared distance
    first, second = (lambda a: a / 2), (lambda a: a * 4 / 2)
    exact = alpha * 9 / 2
    fixed, best = weak_triangle(alpha, first, second, p=2.0), weak_triangle(alpha, first, second)
    assert exact <= best * (1 + 1e-12)
    assert best <= fixed
    # at the best p Gaussians meet it: (1 + 2)² = 9
    assert best == pytest.approx(exact, rel=5e-3)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: renyi_to_epsilon([1.0], [0.1], 1e-5), "`orders` must be a finite number above 1"),
        (lambda: renyi_to_epsilon([2.0], [0.1, 0.2], 1e-5), "`divergences` must hold one value per order"),
        (lambda: renyi_to_epsilon([2.0], [np.nan], 1e-5), "`divergences`"),
        (lambda: renyi_to_epsilon([2.0], [0.1], 0.0), "`delta` must be between 0 and 1"),
        (lambda: renyi_to_delta([2.0], [0.1], -1.0), "`epsilon`"),
        (lambda: gaussian_delta(-1.0, 0.1), "`mu`"),
        (lambda: weak_triangle(2.0, float, float, p=1.0), "`p`"),
    ],
)
def test_bad_input_is_named(call, names):
    with pytest.raises(InputError, match=names):
        call()
