"""Steps to unlearn against exact Gaussian chains, quadrature, and the tables of the notes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm

from remanence.errors import InputError
from remanence.theory.convergence import (
    Converted,
    Corollary,
    SameHorizon,
    corollary_constants,
    epsilon_after,
    steps_to_unlearn,
)
from remanence.theory.conversion import gaussian_delta
from remanence.theory.langevin import Langevin
from remanence.theory.shifted import HockeyStick, Shifted
from remanence.theory.worst_case import horizon_gap, published_worst_case
from remanence.types import Bound, Status

CONVEX = Langevin(4.0, 0.01, 0.25, loss="convex", steps=1000, initial_variance=0.0)
STRONG = Langevin(3.8, 0.003, 0.26, 0.01, steps=400, initial_variance=0.0)


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0, 8.0, 64.0])
def test_constants_of_main_text_and_appendix_agree(alpha):
    assert corollary_constants(alpha, "main") == pytest.approx(
        corollary_constants(alpha, "appendix"), rel=1e-14
    )


def gaussian_renyi(alpha, shift, var_p, var_q):
    mixed = alpha * var_q + (1 - alpha) * var_p
    assert mixed > 0
    logs = (np.log(mixed) - alpha * np.log(var_q) - (1 - alpha) * np.log(var_p)) / (2 * (1 - alpha))
    return alpha * shift**2 / (2 * mixed) + logs


@pytest.mark.parametrize("alpha", [1.5, 2.0, 6.0])
@pytest.mark.parametrize("curvature", [0.05, 0.4, 1.0])
def test_contraction_bounds_an_exact_gaussian_chain(alpha, curvature):
    """F(w) = curvature w²/2; two Gaussian starts pushed through the same steps."""
    dynamics = Langevin(0.5, 0.3, 1.0, curvature, steps=30, initial_variance=0.0)
    c, var_q, var_p, gap = dynamics.contraction, dynamics.log_sobolev(30), 0.7 * dynamics.log_sobolev(30), 0.4
    route = SameHorizon(alpha, gaussian_renyi(alpha, gap, var_p, var_q), dynamics)
    for k in range(1, 40):
        var_p, var_q, gap = (
            c**2 * var_p + dynamics.variance,
            c**2 * var_q + dynamics.variance,
            c * gap,
        )
        assert var_q == pytest.approx(dynamics.log_sobolev(30 + k), rel=1e-12)
        assert gaussian_renyi(alpha, gap, var_p, var_q) <= route.epsilon(k) * (1 + 1e-12)


def test_telescoped_decay_is_the_product_of_the_steps():
    for dynamics in (CONVEX, STRONG, Langevin(0.5, 0.3, 1.0, 0.2, steps=3, initial_variance=2.0)):
        c_sq, constant, total = dynamics.contraction**2, dynamics.log_sobolev(dynamics.steps), 0.0
        for _ in range(25):
            total += np.log1p(dynamics.variance / (c_sq * constant))
            constant = c_sq * constant + dynamics.variance
        assert dynamics.log_decay(25) == pytest.approx(total, rel=1e-10)


def test_shifted_divergence_is_met_by_a_linear_chain():
    """Every training step moved by e, then k steps without: two Gaussians exactly μ_k apart."""
    route = Shifted(STRONG, 1e-5, shift=1e-3)
    c, gap, variance = STRONG.contraction, 0.0, 0.0
    for _ in range(400):
        gap, variance = c * gap + 1e-3, c**2 * variance + STRONG.variance
    for k in range(5):
        assert route.mu(k) == pytest.approx(gap / np.sqrt(variance), rel=1e-9)
        gap, variance = c * gap, c**2 * variance + STRONG.variance


def test_distance_is_absorbed_by_unlearning_steps_alone():
    route = Shifted(STRONG, 1e-5, distance=0.5)
    assert np.isinf(route.mu(0))
    assert route.mu(1) == pytest.approx(0.5 * STRONG.contraction / np.sqrt(STRONG.variance))


TABLE = [  # m, sigma, epsilon, published, log-Sobolev with tracked constant, shifted for Δ = 2, 0.2, 0.02
    (1e-3, 0.003, 1.0, 15380, 7675, 517, 0, 0),
    (1e-3, 0.003, 0.1, 183412, 91524, 1045, 468, 0),
    (1e-2, 0.003, 1.0, 931, 457, 23, 0, 0),
    (1e-2, 0.003, 0.1, 14783, 7249, 77, 19, 0),
    (1e-2, 0.03, 1.0, 0, 0, 0, 0, 0),
    (1e-1, 0.001, 0.1, 1963, 834, 9, 2, 0),
]


@pytest.mark.parametrize(("m", "sigma", "epsilon", "published", "tracked", "two", "fifth", "fiftieth"), TABLE)
def test_table_of_magnitudes(m, sigma, epsilon, published, tracked, two, fifth, fiftieth):
    dynamics = Langevin(1 / (0.25 + m), sigma, 0.25 + m, m)
    worst = steps_to_unlearn(epsilon, published_worst_case(dynamics, lipschitz=1, n=10_000, delta=1e-5))
    assert worst.value == pytest.approx(published, rel=2e-3)
    start = lambda a: SameHorizon(a, 4 * a / (m * sigma**2 * 1e8), dynamics)  # noqa: E731
    assert steps_to_unlearn(epsilon, Converted(start, 1e-5)).value == pytest.approx(tracked, rel=2e-3)
    shifts = [dynamics.learning_rate * each / 1e4 for each in (2, 0.2, 0.02)]
    found = [steps_to_unlearn(epsilon, Shifted(dynamics, 1e-5, shift=shift)).value for shift in shifts]
    assert found == [two, fifth, fiftieth]


def test_a_hundred_examples():
    dynamics = Langevin(1 / 0.26, 0.03, 0.26, 0.01)
    route = published_worst_case(dynamics, lipschitz=1, n=10_000, delta=1e-5, group=100)
    assert steps_to_unlearn(1.0, route).value == pytest.approx(2226, rel=5e-3)
    shifted = Shifted(dynamics, 1e-5, shift=dynamics.learning_rate * 200 / 1e4)
    assert steps_to_unlearn(1.0, shifted).value == 82


def test_convex_losses_cost_more_than_retraining():
    route = Shifted(CONVEX, 1e-5, shift=4.0 * 2 / 1e4)
    assert route.mu(0) == pytest.approx(0.894, abs=5e-4)
    assert steps_to_unlearn(1.0, route).value == 10135
    assert steps_to_unlearn(0.1, route).value == pytest.approx(7.6e5, rel=0.01)
    halved = SameHorizon(2.0, 1.0, CONVEX)
    # k = T((D_0/ε)^α − 1) with a fixed start
    assert steps_to_unlearn(0.5, halved).value == pytest.approx(1000 * (2.0**2 - 1), abs=1)


@pytest.mark.parametrize(
    ("radius", "sigma", "log10_k", "hockey"), [(1, 0.1, 1057, np.inf), (1, 1, 14.2, 123), (10, 10, 12.5, 73)]
)
def test_bounded_losses_are_vacuous_unless_the_noise_is_as_large_as_the_model(radius, sigma, log10_k, hockey):
    dynamics = Langevin(0.1, sigma, 1.0, loss="bounded", radius=radius, lipschitz=1.0)
    assert -dynamics.log_rate() / np.log(10) == pytest.approx(log10_k, abs=2)
    found = steps_to_unlearn(1.0, HockeyStick(dynamics, 1e-5))
    assert found.value == hockey
    assert (found.status is Status.VACUOUS) == np.isinf(hockey)


def test_hockey_stick_starts_as_two_gaussians_at_the_ends_of_the_ball():
    dynamics = Langevin(0.1, 1.0, 1.0, loss="bounded", radius=1.0, lipschitz=1.0)
    apart = 2 * (1 + 0.1) / np.sqrt(dynamics.variance)
    route = HockeyStick(dynamics, 1e-9)
    assert route.delta_after(1, 0.7) == pytest.approx(gaussian_delta(apart, 0.7), rel=1e-9)


def test_hockey_stick_bounds_a_projected_chain_by_quadrature():
    """Two opposite starts under a non-convex force, projected onto [-1, 1] before each step."""
    dynamics = Langevin(0.2, 1.2, 3.0, loss="bounded", radius=1.0, lipschitz=1.0)
    grid = np.linspace(-7, 7, 701)
    held = np.clip(grid, -1, 1)
    mean = held + 0.2 * np.sin(3 * held)
    step = norm.pdf(grid[None], mean[:, None], np.sqrt(dynamics.variance))
    step /= step.sum(axis=1, keepdims=True)
    p, q = step[np.argmin(abs(grid - 1))], step[np.argmin(abs(grid + 1))]
    route = HockeyStick(dynamics, 1e-12)
    for k in range(1, 6):
        for epsilon in (0.1, 1.0):
            truth = np.maximum(p - np.exp(epsilon) * q, 0).sum()
            assert truth <= route.delta_after(k, epsilon) + 1e-9
        p, q = p @ step, q @ step


def test_corollary_is_the_formula_and_its_inverse():
    route = Corollary(2.0, 5.0, rate=0.01, far=0.3, near=0.05)
    b, c = 3.5 / 2, 3.0 / 2
    assert epsilon_after(100, route).value == pytest.approx(
        (b * 5 + c * 0.3) * np.exp(-0.01 * 100 / 4) + 0.05
    )
    closed = 4 / 0.01 * np.log((b * 5 + c * 0.3) / (0.2 - 0.05))
    assert steps_to_unlearn(0.2, route).value == np.ceil(closed)
    unreachable = steps_to_unlearn(0.05, route)
    assert np.isinf(unreachable.value)
    assert unreachable.status is Status.VACUOUS


BALL = Langevin(0.1, 1.0, 1.0, loss="bounded", radius=1.0, lipschitz=1.0)
ROUTES = [
    Corollary(2.0, 5.0, rate=0.01, far=0.3, near=0.05),
    SameHorizon(4.0, 2.0, STRONG),
    SameHorizon(2.0, 2.0, CONVEX),
    Shifted(STRONG, 1e-5, shift=1e-3),
    published_worst_case(STRONG, lipschitz=1, n=5000, delta=1e-5),
    HockeyStick(BALL, 1e-5),
]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.formula)
@pytest.mark.parametrize("target", [1.5, 0.2])
def test_steps_and_epsilon_are_inverse(route, target):
    k = int(steps_to_unlearn(target, route).value)
    assert epsilon_after(k, route).value <= target
    assert k == 0 or epsilon_after(k - 1, route).value > target
    levels = [route.epsilon(each) for each in (0, 1, 5, 50, 500)]
    assert all(a >= b for a, b in pairwise(levels))


def test_t_plus_k_target_beats_the_papers_at_equal_loss():
    rate = float(np.exp(STRONG.log_rate()))
    simple = steps_to_unlearn(0.1, SameHorizon(2.0, 5.0, Langevin(3.8, 0.003, 0.26, 0.01)))
    assert 2 * simple.value <= steps_to_unlearn(0.1, Corollary(2.0, 5.0, rate=rate, far=0.0, near=0.0)).value


def test_the_gap_of_the_t_step_target_vanishes_with_training():
    gaps = [
        horizon_gap(Langevin(3.8, 0.003, 0.26, 0.01, steps=t, radius=2.0), alpha=3) for t in (10, 100, 1000)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    # by hand for T = 10
    c = 1 - 0.038
    expected = 3 * 16 * c**20 * (1 - c**2) / (2 * 2 * 3.8 * 0.003**2 * (1 - c**20))
    assert gaps[0] == pytest.approx(expected)


def test_status_is_inherited_from_the_loss():
    loss = Bound(3.0, Status.ESTIMATE, ("One run.",))
    found = steps_to_unlearn(0.1, SameHorizon(4.0, loss, STRONG))
    assert found.status is Status.ESTIMATE
    assert "One run." in found.assumptions
    assert epsilon_after(0, SameHorizon(4.0, 1e6, STRONG)).status is Status.VACUOUS


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: Langevin(0.0, 1.0, 1.0, 0.1), "`learning_rate`"),
        (lambda: Langevin(0.1, np.nan, 1.0, 0.1), "`sigma`"),
        (lambda: Langevin(0.1, 1.0, 1.0, 2.0), "`strong_convexity`"),
        (lambda: Langevin(10.0, 1.0, 1.0, 0.1), "`learning_rate` must be at most"),
        (lambda: Langevin(0.1, 1.0, 1.0, loss="convex"), "`steps` must be given for a convex loss"),
        (lambda: Langevin(0.1, 1.0, 1.0, loss="bounded"), "`radius` and `lipschitz`"),
        (lambda: Shifted(STRONG, 1e-5), "Exactly one"),
        (lambda: SameHorizon(1.0, 1.0, STRONG), "`alpha`"),
        (lambda: SameHorizon(2.0, -1.0, STRONG), "`loss`"),
        (lambda: SameHorizon(2.0, 1.0, replace(STRONG, initial_variance=None)), "`initial_variance`"),
        (lambda: replace(STRONG, initial_variance=-1.0), "`initial_variance`"),
        (lambda: HockeyStick(BALL, 1e-5, start=0.5), "`start_epsilon`"),
        (lambda: HockeyStick(BALL, 1e-5, start=0.5, start_epsilon=-1.0), "`start_epsilon`"),
        (lambda: steps_to_unlearn(0.0, ROUTES[0]), "`target`"),
        (lambda: epsilon_after(-1, ROUTES[0]), "`k`"),
        (lambda: published_worst_case(CONVEX, lipschitz=1, n=10, delta=1e-5), "strongly convex"),
        (lambda: HockeyStick(STRONG, 1e-5), "`radius`"),
    ],
)
def test_bad_input_is_named(call, names):
    with pytest.raises(InputError, match=names):
        call()
