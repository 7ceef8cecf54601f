"""The per-instance certificate against closed forms, quadrature, linearisation and attack."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binomtest

from remanence.certify.absorption import Absorption, Pulls
from remanence.certify.certification import certify
from remanence.certify.descent import Descent
from remanence.certify.linear_attack import best_direction, epsilon_limit, linear_attack
from remanence.certify.path_bound import PathBound
from remanence.certify.problem import Problem, reference_problem
from remanence.certify.pull_bounds import deviation_lipschitz, mean_pulls
from remanence.theory.langevin import Langevin
from remanence.theory.shifted import Shifted


@pytest.mark.parametrize("k", [0, 1, 7, 60])
def test_constant_shifts_meet_the_shifted_divergence(k):
    """For e_t = e the schedule is the optimum, so Σ a² / s² is the Gaussian μ_k² of shifted divergence."""
    dynamics = Langevin(3.8, 0.003, 0.26, 0.01, steps=120)
    pulls = Pulls.start(Absorption(dynamics.contraction, 120, k), (1, 1))
    for t in range(120):
        pulls.add(t, np.full((1, 1), 1e-3), np.empty((1, 1)))
    ours = float(np.sqrt(pulls.finish()[0, 0] / dynamics.variance))
    assert ours == pytest.approx(Shifted(dynamics, 1e-5, shift=1e-3).mu(k), rel=1e-9)


def test_amplification_is_the_norm_of_the_whole_matrix():
    c, total, k = 0.93, 25, 6
    schedule = Absorption(c, total, k)
    columns = []
    for j in range(total):
        z, pulls = 0.0, []
        for t in range(total + k):
            apart = c * z + (t == j)
            pulls.append(schedule.kappa[t] * apart)
            z = (1 - schedule.kappa[t]) * apart
        assert z == 0
        columns.append(pulls)
    gamma = np.array(columns).T
    toeplitz = np.array([[c ** (t - 1 - j) if j < t else 0.0 for j in range(total)] for t in range(total)])
    assert schedule.amplification == pytest.approx(np.linalg.norm(gamma @ toeplitz, 2), rel=1e-8)


# --- One dimension, where the laws of unlearning and retraining can be computed on a grid.

GRID = np.linspace(-9, 9, 1201)


def law(signs, x, dynamics, steps, start=None):
    eta, m = dynamics.learning_rate, dynamics.strong_convexity
    gradient = (-signs * x * expit(-signs * x * GRID[:, None])).mean(axis=1)
    mean = GRID - eta * (gradient + m * GRID)
    kernel = np.exp(-((GRID[None] - mean[:, None]) ** 2) / (2 * dynamics.variance))
    kernel /= kernel.sum(axis=1, keepdims=True)
    p = np.zeros(GRID.size) if start is None else start
    if start is None:
        p[GRID.size // 2] = 1.0
    for _ in range(steps):
        p = p @ kernel
    return p


@pytest.mark.parametrize("k", [0, 1, 3, 10, 25])
@pytest.mark.parametrize(("n", "sigma"), [(12, 0.35), (40, 0.2), (40, 0.5), (150, 0.1)])
def test_certificate_bounds_the_exact_laws_in_one_dimension(n, sigma, k):
    rng = np.random.default_rng(n)
    x = np.clip(rng.normal(0.5, 0.4, n), -1, 1)
    signs = np.where(rng.random(n) < 0.8, 1.0, -1.0)
    problem = Problem.from_labels("line", x[:, None], signs)
    steps, m = 30, 0.1
    smooth = problem.smoothness()
    dynamics = Langevin(1 / (smooth + m), sigma, smooth + m, m, steps=steps)
    schedule = Absorption(dynamics.contraction, steps, k)
    means, _ = mean_pulls(Descent(problem, dynamics), [schedule], 24, np.random.default_rng(1))
    lip = deviation_lipschitz(Descent(problem, dynamics)) * schedule.amplification
    assert lip == pytest.approx(
        dynamics.learning_rate * (x**2 / 4 + (x**2).mean() / 4) / (n - 1) * schedule.amplification
    )
    certified = PathBound(1e-5).epsilon(means[0] + lip * np.sqrt(2 * np.log(1e6) / 24), lip)
    hardest = int(np.argmax(certified))
    rest = np.arange(n) != hardest
    trained = law(signs, x, dynamics, steps)
    unlearned = law(signs[rest], x[rest], dynamics, k, trained)
    retrained = law(signs[rest], x[rest], dynamics, steps + k)
    excess = np.maximum(unlearned - np.exp(certified[hardest]) * retrained, 0).sum()
    assert excess <= 1e-5
    # and the certificate is not idle: it certifies something finite
    assert np.isfinite(certified[hardest])


SMALL = reference_problem(n=1500, d=12, seed=2)


@pytest.fixture(scope="module")
def small():
    return certify(SMALL, steps=150, runs=12, l2=0.01, attack_models=200, seed=3)


def test_pull_is_never_below_the_linearised_distance():
    smooth = SMALL.smoothness()
    dynamics = Langevin(1 / (smooth + 0.01), 5 / 1500, smooth + 0.01, 0.01, steps=150)
    descent = Descent(SMALL, dynamics)
    schedules = [Absorption(dynamics.contraction, 150, k) for k in (0, 10, 40)]
    means, _ = mean_pulls(descent, schedules, 8, np.random.default_rng(0))
    order = np.argsort(means[0])
    for position in order[[0, 400, 800, 1200, 1450, -1]]:
        for i, k in enumerate((0, 10, 40)):
            assert means[i, position] >= best_direction(descent, int(position), 150, k).mu


def test_small_problem_holds_together(small):
    found = small.document()
    k = found["k_instance"]
    assert k["min"] <= k["median"] <= k["max"] <= found["k_shifted"] <= found["k_published"]
    assert found["epsilon_measured"] <= found["epsilon_certified"] <= 0.5
    assert np.all(small.epsilon <= 0.5)
    assert found["epsilon_measured_before"] > found["epsilon_measured"]
    assert small.mean_pull >= small.linear_mu
    assert found["accuracy"] > 0.9
    assert found["status"] == "certificate"
    assert found["consistent"]
    lines = small.table().splitlines()
    assert lines[0] == "id,k,epsilon"
    assert len(lines) == 1501


def test_one_statement_for_all_costs_little(small):
    single = certify(SMALL, steps=150, runs=12, l2=0.01, attack_models=0, seed=3, simultaneous=False)
    assert np.all(single.steps.values <= small.steps.values)
    assert np.median(small.steps.values) <= 2 * np.median(single.steps.values) + 5


def test_epsilon_and_threshold_agree_and_fall_with_the_pull():
    bound, lips = PathBound(1e-5), np.array([1e-4, 1e-3, 1e-2])
    threshold = bound.threshold(lips, 0.5)
    assert bound.epsilon(threshold, lips) == pytest.approx(0.5, rel=1e-9)
    assert np.all(bound.epsilon(threshold * 0.9, lips) < 0.5)
    assert bound.threshold(np.array([10.0]), 0.5) == -1
    # with a deterministic pull the bound comes close to the Gaussian it describes
    assert bound.epsilon(np.array([0.2]), np.array([1e-9]))[0] == pytest.approx(0.7944, abs=0.01)


def test_outputs_of_one_against_the_rest_add_up():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    problem = Problem.from_labels("three", x, y)
    dynamics = Langevin(1 / (problem.smoothness() + 0.05), 0.05, problem.smoothness() + 0.05, 0.05, steps=20)
    schedule = [Absorption(dynamics.contraction, 20, 2)]
    joint, _ = mean_pulls(Descent(problem, dynamics), schedule, 1, np.random.default_rng(5))
    weights_noise = np.random.default_rng(5)
    singles = np.zeros(60)
    draws = [weights_noise.normal(size=(4, 3)) for _ in range(20)]
    for c in range(3):
        alone = Descent(Problem("one", problem.ids, problem.features, problem.signs[:, [c]]), dynamics)
        replay = _Replay([draw[:, [c]] for draw in draws])
        pulled, _ = mean_pulls(alone, schedule, 1, replay)
        singles += pulled[0] ** 2
    assert joint[0] == pytest.approx(np.sqrt(singles), rel=1e-9)


class _Replay:
    """A generator that repeats given draws."""

    def __init__(self, draws):
        self.draws = iter(draws)

    def normal(self, size):
        draw = next(self.draws)
        assert draw.shape == size
        return draw


def test_limits_are_clopper_pearson():
    low = binomtest(180, 200).proportion_ci(confidence_level=0.95, method="exact").low
    high = binomtest(30, 200).proportion_ci(confidence_level=0.95, method="exact").high
    assert epsilon_limit(180, 30, 200, 1e-5, 0.95) == pytest.approx(np.log((low - 1e-5) / high))
    assert epsilon_limit(0, 30, 200, 1e-5, 0.95) == 0
    assert epsilon_limit(200, 200, 200, 1e-5, 0.95) == 0


def test_attack_sees_what_was_not_unlearned():
    smooth = SMALL.smoothness()
    dynamics = Langevin(1 / (smooth + 0.01), 2 / 1500, smooth + 0.01, 0.01, steps=100)
    descent = Descent(SMALL, dynamics)
    wrong = int(
        np.argmin(
            SMALL.signs[:, 0]
            * (SMALL.features @ descent.run(100, SMALL.signs, np.zeros((12, 1)), None))[:, 0]
        )
    )
    before, after = linear_attack(
        descent, wrong, steps=100, k=120, delta=1e-5, models=200, rng=np.random.default_rng(0)
    )
    assert before.epsilon > 1
    assert after.epsilon < 0.3
    # hits follow the linearisation it was aimed by
    assert before.unlearned_hits > 3 * before.retrained_hits


def test_the_reference_problem():
    found = certify(reference_problem(), attack_models=0).document()
    assert found["k_published"] == pytest.approx(8600, rel=0.02)
    assert found["k_shifted"] == pytest.approx(191, abs=2)
    assert found["k_instance"]["median"] * 50 <= found["k_published"]
    assert found["k_instance"]["median"] * 5 <= found["k_shifted"]


def test_the_pull_moves_no_faster_than_its_lipschitz_constant():
    """Two runs whose noise differs by a known amount: their F may differ by K times that amount."""
    smooth = SMALL.smoothness()
    dynamics = Langevin(1 / (smooth + 0.01), 5 / 1500, smooth + 0.01, 0.01, steps=40)
    descent, schedule = Descent(SMALL, dynamics), Absorption(dynamics.contraction, 40, 5)
    rng = np.random.default_rng(0)
    noise = [rng.normal(size=(12, 1)) for _ in range(40)]
    base, _ = mean_pulls(descent, [schedule], 1, _Replay(noise))
    limit = deviation_lipschitz(descent) * schedule.amplification
    for size in (0.1, 10.0):
        change = [size * rng.normal(size=(12, 1)) for _ in range(40)]
        moved, _ = mean_pulls(
            descent, [schedule], 1, _Replay([a + b for a, b in zip(noise, change, strict=True)])
        )
        distance = np.sqrt(sum(np.sum(each**2) for each in change))
        assert np.all(np.abs(moved - base) <= limit * distance)
