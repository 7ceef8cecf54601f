"""`log_moment` against arbitrary-precision arithmetic and independent accountants."""

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_poisson_subsampled_gaussian
from opacus.accountants.analysis.rdp import compute_rdp

from remanence.errors import InputError
from remanence.theory.sampled_gaussian import log_moment

RATIOS = [10.0**k for k in range(-9, 8)] + [0.3, 0.59, 2.5, 26.7]


def precise(order: int, rate: float, ratio: float) -> float:
    with mpmath.workdps(60):
        q, square = mpmath.mpf(rate), mpmath.mpf(ratio) ** 2
        excess = sum(
            mpmath.binomial(order, k)
            * (1 - q) ** (order - k)
            * q**k
            * mpmath.expm1(square * (k * (k - 1)) / 2)
            for k in range(2, order + 1)
        )
        return float(mpmath.log1p(excess))


@pytest.mark.parametrize("rate", [1e-4, 0.00256, 0.3, 0.999])
@pytest.mark.parametrize("order", [2, 3, 5, 8, 11, 23, 40, 64, 129, 130])
def test_agrees_with_sixty_digits(order, rate):
    ours = log_moment(order, rate, RATIOS)
    truth = np.array([precise(order, rate, ratio) for ratio in RATIOS])
    assert np.max(np.abs(ours / truth - 1)) <= 1e-12


def test_the_largest_case_of_the_notes():
    assert log_moment(8, 0.00256, 1e7) == pytest.approx(2.8e15, rel=1e-3)


@pytest.mark.parametrize("order", [2, 3, 8, 16, 32])
@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.0026, 0.7), (0.2, 4.0)])
def test_whole_orders_agree_with_two_accountants(order, rate, noise):
    ours = float(log_moment(order, rate, 1 / noise)) / (order - 1)
    assert ours == pytest.approx(_compute_rdp_poisson_subsampled_gaussian(rate, noise, [order])[0], rel=1e-6)
    assert ours == pytest.approx(
        compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=[order])[0], rel=1e-6
    )


@pytest.mark.parametrize("order", [1.05, 1.5, 2.5, 7.3, 11.1, 20.9])
@pytest.mark.parametrize(
    ("rate", "ratio"), [(0.0026, 1.0), (0.05, 2.0), (0.4, 0.01), (0.01, 7.0), (0.5, 30.0)]
)
def test_exact_fractional_orders_agree_with_quadrature(order, rate, ratio):
    with mpmath.workdps(25):
        a, q, r = (mpmath.mpf(each) for each in (order, rate, ratio))

        def integrand(z):
            return (1 - q + q * mpmath.exp(r * z - r * r / 2)) ** a * mpmath.exp(-z * z / 2)

        kink = (mpmath.log((1 - q) / q) + r * r / 2) / r
        points = sorted(
            {mpmath.mpf(-14), mpmath.mpf(0), kink, r * a, r * a + 14, (kink + r * a) / 2, kink / 2}
        )
        points = [z for z in points if -14 <= z <= r * a + 14]
        truth = float(mpmath.log(mpmath.quad(integrand, points, maxdegree=7) / mpmath.sqrt(2 * mpmath.pi)))
    ours = float(log_moment(order, rate, ratio, fractional="exact"))
    assert ours == pytest.approx(truth, rel=1e-9)
    assert ours <= float(log_moment(order, rate, ratio)) * (1 + 1e-9)


def test_exact_keeps_its_digits_for_tiny_ratios():
    # for small ratios ln A tends to a(a − 1)/2 q²(e^{ρ²} − 1), fractional orders included
    assert log_moment(2.5, 0.01, 1e-7, fractional="exact") == pytest.approx(1.875 * 1e-4 * 1e-14, rel=1e-6)


def test_fractional_example_of_the_notes():
    per_order = lambda fractional: float(log_moment(11.1, 0.0026, 1.0, fractional=fractional)) / 10.1  # noqa: E731
    assert per_order("exact") == pytest.approx(7.47e-5, rel=2e-3)
    assert per_order("linear") == pytest.approx(1.20e-4, rel=5e-3)


def test_full_batch_is_the_gaussian_at_any_order():
    assert log_moment(3.7, 1.0, 0.25) == pytest.approx(3.7 * 2.7 * 0.0625 / 2, rel=1e-15)


def test_zero_and_overflow_are_said_not_hidden():
    assert log_moment(8, 0.01, 0.0) == 0
    assert np.isposinf(log_moment(8, 0.01, 1e200))
    assert log_moment(5000, 0.01, 1e-3) == pytest.approx(5000 * 4999 * 1e-6 / 2)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((0.5, 0.1, 1.0), "`order`"),
        ((8, 0.0, 1.0), "`sampling_rate`"),
        ((8, 128, 1.0), "batch_size / len"),
        ((8, 0.1, [-1.0]), "`ratio`"),
        ((8, 0.1, [np.nan]), "got nan"),
        ((8, 0.1, np.inf), "got inf"),
    ],
)
def test_bad_input_is_named(arguments, names):
    with pytest.raises(InputError, match=names):
        log_moment(*arguments)
