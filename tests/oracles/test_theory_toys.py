"""Small chains whose law is known exactly: no bound that claims to be one may fall below the truth."""

from itertools import combinations

import numpy as np
import pytest

from remanence.theory.composition import printed_orders, stepwise_orders
from remanence.theory.privacy_loss import privacy_loss, worst_case_loss
from remanence.types import Mechanism, Status

# --- 1-D quadratic, full batches: every law is Gaussian and every divergence has a closed form.


def gaussian_renyi(alpha, mean_p, var_p, mean_q, var_q):
    mixed = alpha * var_q + (1 - alpha) * var_p
    assert mixed > 0
    shift = alpha * (mean_p - mean_q) ** 2 / (2 * mixed)
    logs = np.log(mixed) - alpha * np.log(var_q) - (1 - alpha) * np.log(var_p)
    return shift + logs / (2 * (1 - alpha))


class Quadratic:
    """Loss (w − x_i)²/2, x_i = 0 but for the example at 1; gradient sums over n, noise s, start at 0."""

    def __init__(self, n, noise, eta):
        self.n, self.noise, self.eta = n, noise, eta

    def marginal(self, steps, with_x):
        pull = self.eta * (1.0 if with_x else (self.n - 1) / self.n)
        mean, var = 0.0, 0.0
        for _ in range(steps):
            mean = (1 - pull) * mean + (self.eta / self.n if with_x else 0.0)
            var = (1 - pull) ** 2 * var + (self.eta * self.noise) ** 2
        return mean, var

    def norms(self, steps, runs, seed):
        rng = np.random.default_rng(seed)
        w, out = np.zeros(runs), np.empty((runs, steps, 1))
        for t in range(steps):
            out[:, t, 0] = np.abs(w - 1)
            w = (1 - self.eta) * w + self.eta / self.n + self.eta * self.noise * rng.normal(size=runs)
        return out


@pytest.mark.parametrize("alpha", [1.5, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("steps", [1, 5, 50])
@pytest.mark.parametrize("noise", [0.05, 0.5])
def test_quadratic_full_batch(alpha, steps, noise):
    toy = Quadratic(n=200, noise=noise, eta=0.3)
    exact = gaussian_renyi(alpha, *toy.marginal(steps, True), *toy.marginal(steps, False))
    mechanism = Mechanism(noise, 1.0, steps, toy.n, sampling="poisson", denominator="fixed", assumed=False)
    norms = toy.norms(steps, runs=400, seed=steps)
    # the gradient that matters at step t is at w_{t−1}: row t − 1 with the left rule, checkpoint t − 1
    options = {"steps": np.arange(steps), "mechanism": mechanism, "rule": "left", "alpha": alpha}
    assert exact >= 0
    for composition, p in (
        ("pathwise", None),
        ("pathwise", 10),
        ("stepwise", None),
        ("stepwise", 30.0 * steps),
    ):
        bound = privacy_loss(norms, composition=composition, p=p, **options).values[0]
        assert exact <= bound * (1 + 1e-9)
    stepwise = privacy_loss(norms, composition="stepwise", **options).values[0]
    assert privacy_loss(norms, composition="printed", **options).values[0] >= stepwise


# --- 1-D bounded gradient, Poisson batches: the law by quadrature on a grid.

POINTS = np.array([-1.0, 0.4, 1.5])  # the last one is forgotten
GRID = np.linspace(-6, 6, 361)
ETA, BATCH = 0.7, 1.0


def kernel(points, rate, noise):
    """Transition density from every grid point to every other, summed over the batches that may be drawn."""
    cell = GRID[1] - GRID[0]
    total = np.zeros((GRID.size, GRID.size))
    for size in range(len(points) + 1):
        for batch in combinations(points, size):
            chance = rate**size * (1 - rate) ** (len(points) - size)
            if chance == 0:
                continue
            grad = sum((np.tanh(GRID - x) for x in batch), np.zeros_like(GRID)) / BATCH
            mean = 0.9 * GRID - ETA * grad
            total += chance * np.exp(-((GRID[None] - mean[:, None]) ** 2) / (2 * (ETA * noise) ** 2))
    total /= total.sum(axis=1, keepdims=True) * cell
    return total * cell


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("noise", [0.6, 1.5])
def test_bounded_gradient_with_poisson_batches(rate, noise):
    with_x, without = kernel(POINTS, rate, noise), kernel(POINTS[:-1], rate, noise)
    start = np.exp(-(GRID**2) / 2)
    p = q = start / start.sum()
    laws = [p]
    horizon = {1, 3, 10, 40}
    rng = np.random.default_rng(0)
    for t in range(1, 41):
        p, q = p @ with_x, q @ without
        laws.append(p)
        if t not in horizon:
            continue
        for alpha in (2.0, 6.0):
            exact = np.log(np.sum(p**alpha * q ** (1 - alpha))) / (alpha - 1)
            reverse = np.log(np.sum(q**alpha * p ** (1 - alpha))) / (alpha - 1)
            check_bounds(exact, reverse, alpha, t, rate, noise, laws, paths(with_x, laws[0], t, rng))


def paths(transition, start, steps, rng):
    """Simulated paths of the chain with x, on the grid."""
    cumulative = transition.cumsum(axis=1)
    at = np.searchsorted(start.cumsum(), rng.random(1500))
    out = np.empty((at.size, steps), int)
    for t in range(steps):
        out[:, t] = at
        at = np.minimum((cumulative[at] < rng.random(at.size)[:, None]).sum(axis=1), GRID.size - 1)
    return out


def check_bounds(exact, reverse, alpha, steps, rate, noise, laws, walked):
    mechanism = Mechanism(
        noise, rate, steps, BATCH, sampling="poisson", denominator="fixed", assumed=False, max_norm=1.0
    )
    norm_at = np.abs(np.tanh(GRID - POINTS[-1]))
    # equally likely quantiles of each marginal stand for the expectation of the step-wise bound
    levels = (np.arange(200) + 0.5) / 200
    quantiles = np.stack(
        [np.searchsorted(law.cumsum() / law.sum(), levels).clip(max=GRID.size - 1) for law in laws[:steps]],
        axis=1,
    )
    options = {"steps": np.arange(steps), "mechanism": mechanism, "rule": "left", "alpha": alpha}
    capped = worst_case_loss(mechanism, alpha=alpha)
    assert capped.status in (Status.CERTIFICATE, Status.VACUOUS)
    assert max(exact, reverse) <= capped.value * (1 + 1e-6) + 1e-10
    for composition, where, p in (
        ("pathwise", walked, None),
        ("pathwise", walked, 5.0),
        ("stepwise", quantiles, None),
        ("stepwise", quantiles, 30.0 * steps),
    ):
        norms = norm_at[where][:, :, None]
        bound = privacy_loss(norms, composition=composition, p=p, **options).values[0]
        assert exact <= bound * (1 + 1e-3) + 1e-10, (composition, p)
        assert bound <= capped.value
    certified = privacy_loss(np.ones((1, 1)), everywhere=True, **{**options, "steps": [0]})
    assert exact <= certified.values[0] + 1e-10


# --- The time index as printed.


def test_the_printed_index_is_not_a_theorem():
    """Three steps on four states; α = 2, p = 9. Under D a rare first move (probability e^-x, e^y times as
    likely as under D′) leads to a place whose next two moves D makes surely and D′ with chances e^-u, e^-v.

    The printed time index gives the first step its lowest order and the later ones their highest, so the sum
    of logs stays near 0 while the divergence grows. With the index turned round the bound holds.
    """
    alpha, p, steps, x = 2.0, 9.0, 3, 200.0
    t = np.arange(1, steps + 1)
    printed = printed_orders(alpha, p, steps)
    slack = x - 4.0  # each printed mean is then 1 + e^-4
    y, u, v = slack / (printed[0] - 1), slack / (p * (printed[1] - 1)), slack / (p * (printed[2] - 1))
    exact = np.logaddexp(0.0, -x + (alpha - 1) * (y + u + v)) / (alpha - 1)

    def log_means(orders):
        """ln h of the first step, whose start is fixed, and ln E h^p of the later ones."""
        a, b, c = orders - 1
        return np.logaddexp(0, [-x + a * y, -x + p * b * u, -x + p * c * v])

    constants = ((p - 1) / p) ** (t + 1) / (alpha - 1)
    literal = constants @ (log_means(printed) * [p, 1, 1])
    assert exact > 3
    assert literal < 0.2
    weights = ((p - 1) / p) ** (steps - t) / (alpha - 1)
    turned = weights @ (log_means(stepwise_orders(alpha, p, steps)) / [1, p, p])
    assert turned >= exact


def test_printed_orders_are_o_p_composed():
    p, order, expected = 30.0, 8.0, []
    for _ in range(10):
        order = p / (p - 1) * order - 1 / p
        expected.append(order)
    assert printed_orders(8.0, p, 10) == pytest.approx(expected, rel=1e-13)
    recursion = [8.0]
    for _ in range(9):
        recursion.append((p * recursion[-1] - 1) / (p - 1))
    assert stepwise_orders(8.0, p, 10)[::-1] == pytest.approx(recursion, rel=1e-13)
