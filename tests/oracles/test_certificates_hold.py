"""Whatever says *certificate* is at or above the exact divergence, on random problems where that is known.

This is the gate for every number that may say *certificate*. The functions, commands and names of routes are enumerated
from the code, so that a new one fails here until it has cases of its own. Problems are chains of Gaussians
(w′ = c w + shift + noise), mixtures of Gaussians for subsampling, and one-dimensional chains on a grid.
"""

import importlib
import inspect
import json
import pkgutil
from collections import Counter
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
from scipy.special import expit, gammaln, logsumexp

import remanence.certify
import remanence.theory
from remanence.certify.certification import certify
from remanence.certify.problem import Problem
from remanence.cli import bound as bound_command
from remanence.cli.main import run
from remanence.theory.constant_norms import constant_group_loss, constant_loss
from remanence.theory.convergence import Converted, Corollary, SameHorizon, epsilon_after, steps_to_unlearn
from remanence.theory.conversion import gaussian_delta, gaussian_epsilon
from remanence.theory.group import group_loss, published_group_loss
from remanence.theory.langevin import Langevin
from remanence.theory.privacy_loss import privacy_loss, privacy_losses, worst_case_loss
from remanence.theory.routes import RouteName, RouteSettings, epsilon_at_delta, given_bound
from remanence.theory.shifted import HockeyStick, Shifted
from remanence.theory.worst_case import horizon_gap, published_worst_case
from remanence.types import Bound, Mechanism, Status

CERTIFICATE = Status.CERTIFICATE
SLACK = 1e-9
"""Relative rounding error of the exact values."""


def gaussian_renyi(alpha, gap, var_p, var_q):
    """D_α(N(gap, var_p) ‖ N(0, var_q)), infinite where the integral diverges."""
    mixed = alpha * var_q + (1 - alpha) * var_p
    if mixed <= 0:
        return np.inf
    logs = (np.log(mixed) - alpha * np.log(var_q) - (1 - alpha) * np.log(var_p)) / (2 * (1 - alpha))
    return max(0.0, float(alpha * gap**2 / (2 * mixed) + logs))


@dataclass(frozen=True)
class Chain:
    """A quadratic loss: training with x shifts every step by `shift`; unlearning takes k steps without it."""

    learning_rate: float
    sigma: float
    curvature: float
    steps: int
    start: float
    offset: float
    lipschitz: float
    n: int
    used: float
    k: int

    @classmethod
    def draw(cls, rng):
        curvature = float(rng.uniform(0.002, 0.25))
        return cls(
            learning_rate=float(rng.uniform(0.2, 1.0) / (0.25 + curvature)),
            sigma=float(10 ** rng.uniform(-3.5, -0.5)),
            curvature=curvature,
            steps=int(10 ** rng.uniform(0, 3)),
            start=float(rng.choice([0.0, 10 ** rng.uniform(-6, 1)])),
            offset=float(rng.choice([0.0, rng.normal()])),
            lipschitz=float(10 ** rng.uniform(-1, 0.5)),
            n=int(10 ** rng.uniform(1, 4)),
            used=float(rng.choice([1.0, rng.uniform(0.1, 1)])),
            k=int(10 ** rng.uniform(-0.3, 2.5)),
        )

    @property
    def dynamics(self):
        return Langevin(
            self.learning_rate,
            self.sigma,
            0.25 + self.curvature,
            self.curvature,
            steps=self.steps,
            initial_variance=self.start,
        )

    @property
    def c(self):
        return 1 - self.learning_rate * self.curvature

    @property
    def shift(self):
        return self.used * self.learning_rate * 2 * self.lipschitz / self.n

    def gap(self, k):
        """Distance of the means after T steps of training and k of unlearning."""
        return self.shift * (1 - self.c**self.steps) / (1 - self.c) * self.c**k

    def mean(self, steps):
        """Of retraining; the first weights have the mean `offset`, the last ones 0."""
        return self.offset * self.c**steps

    def variance(self, steps):
        c_sq = self.c**2
        return c_sq**steps * self.start + self.dynamics.variance * (1 - c_sq**steps) / (1 - c_sq)

    @property
    def stationary(self):
        return self.dynamics.variance / (1 - self.c**2)

    def renyi(self, alpha, k):
        """Exactly, towards retraining for T + k steps."""
        return alpha * self.gap(k) ** 2 / (2 * self.variance(self.steps + k))

    def epsilon(self, delta, k):
        return gaussian_epsilon(min(self.gap(k) / np.sqrt(self.variance(self.steps + k)), 900.0), delta)

    def options(self, route):
        """The chain as options of `remanence bound`."""
        named = {
            "route": route,
            "learning-rate": self.learning_rate,
            "sigma": self.sigma,
            "smoothness": 0.25 + self.curvature,
            "strong-convexity": self.curvature,
            "train-steps": self.steps,
        }
        return [part for name, value in named.items() for part in (f"--{name}", str(value))]


@dataclass(frozen=True)
class Claim:
    """A value with its status, and the exact quantity that it must not be below."""

    value: float
    status: Status
    exact: float


def claim(bound, exact):
    return Claim(bound.value, bound.status, exact)


def draw_alpha(rng):
    return float(rng.choice([1.5, 2.0, 4.0, 8.0, 1 + 10 ** rng.uniform(-1, 1.5)]))


def proved(value):
    return Bound(value, CERTIFICATE, ("Exact.",))


# --- Losses after training


def bernoulli_mixture(alpha, rate, ratio, steps):
    """D_α(Σ_j Binomial(j) N(jρ, T) ‖ N(0, T)) by quadrature: T steps of a constant gradient, Poisson sampling."""
    z = np.linspace(-14, 14 + 1.5 * alpha * ratio * np.sqrt(steps), 6001) * np.sqrt(steps)
    j = np.arange(steps + 1)[:, None]
    log_weights = gammaln(steps + 1) - gammaln(j + 1) - gammaln(steps - j + 1)
    log_weights = log_weights + j * np.log(rate) + (steps - j) * np.log1p(-rate)
    log_ratio = logsumexp(log_weights + (j * ratio * z - (j * ratio) ** 2 / 2) / steps, axis=0)
    density = -(z**2) / (2 * steps) - 0.5 * np.log(2 * np.pi * steps)
    return float((logsumexp(alpha * log_ratio + density) + np.log(z[1] - z[0])) / (alpha - 1))


def draw_training(rng):
    """Rate, ratio, steps and the exact divergence of the sum of all steps."""
    alpha = float(rng.choice([2.0, 3.0, 4.5, 8.0]))
    steps, ratio = int(rng.integers(1, 12)), float(10 ** rng.uniform(-2, 0.0))
    if rng.random() < 0.5:
        return alpha, 1.0, ratio, steps, alpha * steps * ratio**2 / 2
    rate = float(rng.uniform(0.02, 0.9))
    return alpha, rate, ratio, steps, bernoulli_mixture(alpha, rate, ratio, steps)


def loss_case(rng):
    alpha, rate, ratio, steps, exact = draw_training(rng)
    composition = str(rng.choice(["pathwise", "stepwise", "printed", "accountant"]))
    bound, _ = constant_loss(
        sampling_rate=rate,
        ratio=ratio,
        steps=steps,
        alpha=alpha,
        composition=composition,
        everywhere=bool(rng.random() < 0.8),
        assumed=bool(rng.random() < 0.1),
    )
    return claim(bound, exact)


def scores_case(rng):
    """Norms that hold everywhere, norms below a `max_norm`, and clipped norms."""
    alpha, rate, ratio, steps, exact = draw_training(rng)
    batch, sigma = 16.0, 0.7
    norm = ratio * batch * sigma
    way = rng.choice(["everywhere", "capped", "clipped"])
    mechanism = Mechanism(
        sigma,
        rate,
        steps,
        batch,
        sampling="poisson",
        denominator="fixed",
        assumed=False,
        max_norm=None if way == "everywhere" else norm,
        clipped=way == "clipped",
    )
    seen = np.full((1, 1), norm * (3 if way == "clipped" else 1))
    options = {"steps": [0], "mechanism": mechanism, "everywhere": way == "everywhere"}
    scores = privacy_losses(seen, alphas=[alpha], composition="accountant", **options)[alpha, sigma]
    assert scores.values[0] == privacy_loss(seen, alpha=alpha, composition="accountant", **options).values[0]
    return Claim(float(scores.values[0]), scores.status, exact)


def worst_case_case(rng):
    alpha, rate, ratio, steps, exact = draw_training(rng)
    mechanism = Mechanism(
        1.0, rate, steps, 1, sampling="poisson", denominator="fixed", assumed=False, max_norm=ratio
    )
    return claim(worst_case_loss(mechanism, alpha=alpha), exact)


def group_case(rng):
    """Full batches and parallel gradients, so that the exact divergence is that of one example m times as large."""
    alpha, ratio, steps = (
        draw_alpha(rng),
        float(10 ** rng.uniform(-2, -0.5)),
        int(rng.integers(1, 6)),
    )
    size = int(rng.integers(0, 4))
    exact = alpha * steps * (size * ratio) ** 2 / 2
    method = str(rng.choice(["coupled", "upper", "published"]))
    if rng.random() < 0.2:
        mechanism = Mechanism(1.0, 1.0, steps, 1, sampling="poisson", denominator="fixed", assumed=False)
        gram = np.full((size, size), ratio**2)
        return claim(group_loss([gram], steps=[0], mechanism=mechanism, alpha=alpha, method="upper"), exact)
    if rng.random() < 0.2:
        bound = published_group_loss(lambda order: order * steps * ratio**2 / 2, size, alpha=alpha)
        return claim(bound, exact)
    bound = constant_group_loss(
        sampling_rate=1.0, ratio=ratio, size=size, steps=steps, similarity=1.0, alpha=alpha, method=method
    )
    return claim(bound, exact)


# --- Routes to unlearning


def same_horizon_case(rng):
    chain, alpha = Chain.draw(rng), draw_alpha(rng)
    known = rng.random()
    loss = proved(chain.renyi(alpha, 0)) if known < 0.8 else chain.renyi(alpha, 0)
    dynamics = chain.dynamics
    if rng.random() < 0.3:  # the number of training steps is not given
        dynamics = Langevin(
            chain.learning_rate,
            chain.sigma,
            0.25 + chain.curvature,
            chain.curvature,
            initial_variance=chain.start,
        )
    return claim(epsilon_after(chain.k, SameHorizon(alpha, loss, dynamics)), chain.renyi(alpha, chain.k))


def convex_case(rng):
    """No curvature: the divergence only falls because the noise adds up."""
    alpha, steps, k = draw_alpha(rng), int(10 ** rng.uniform(0, 2)), int(10 ** rng.uniform(0, 2))
    start = float(rng.choice([0.0, 10 ** rng.uniform(-6, 1)]))
    dynamics = Langevin(1.0, 0.1, 0.25, loss="convex", steps=steps, initial_variance=start)
    gap = float(10 ** rng.uniform(-3, 0))
    before, after = (alpha * gap**2 / (2 * (start + dynamics.variance * t)) for t in (steps, steps + k))
    if rng.random() < 0.5:
        return claim(epsilon_after(k, SameHorizon(alpha, proved(before), dynamics)), after)
    delta = 1e-5
    exact = gaussian_epsilon(min(gap / np.sqrt(start + dynamics.variance * (steps + k)), 900.0), delta)
    return claim(epsilon_after(k, Shifted(dynamics, delta, shift=gap / steps)), exact)


def corollary_terms(chain, alpha):
    """The two divergences between T steps and the stationary law, and the exact one to T steps of retraining."""
    trained, mean = chain.variance(chain.steps), chain.mean(chain.steps)
    far = gaussian_renyi(4 * alpha - 1, mean, trained, chain.stationary)
    near = gaussian_renyi(2 * alpha - 1, mean, chain.stationary, trained)
    return far, near, to_t_steps(chain, alpha, chain.k)


def to_t_steps(chain, alpha, k):
    """Exactly, towards retraining for T steps."""
    moved = chain.gap(k) + chain.mean(chain.steps + k) - chain.mean(chain.steps)
    return gaussian_renyi(alpha, moved, chain.variance(chain.steps + k), chain.variance(chain.steps))


def corollary_case(rng):
    chain, alpha = Chain.draw(rng), draw_alpha(rng)
    far, near, exact = corollary_terms(chain, alpha)
    rate = float(np.exp(chain.dynamics.log_rate()))
    given = [proved(value) if rng.random() < 0.9 else value for value in (far, near)]
    route = Corollary(alpha, proved(4 * chain.renyi(alpha, 0)), rate, *given)
    return claim(epsilon_after(chain.k, route), exact)


def horizon_case(rng):
    """Fixed starts R apart at most, with room for the noise inside the ball."""
    chain, alpha = Chain.draw(rng), draw_alpha(rng)
    radius = float(10 * np.sqrt(chain.stationary) * rng.uniform(1, 3))
    dynamics = Langevin(
        chain.learning_rate,
        chain.sigma,
        0.25 + chain.curvature,
        chain.curvature,
        steps=chain.steps,
        radius=radius,
    )
    fixed = chain.dynamics.variance * (1 - chain.c ** (2 * chain.steps)) / (1 - chain.c**2)
    apart = 2 * radius * chain.c**chain.steps
    return Claim(horizon_gap(dynamics, alpha=alpha), CERTIFICATE, alpha * apart**2 / (2 * fixed))


def shifted_case(rng):
    chain, delta = Chain.draw(rng), float(10 ** rng.uniform(-8, -2))
    exact = chain.epsilon(delta, chain.k)
    if rng.random() < 0.3 and chain.k:
        # a distance after training, absorbed by the unlearning steps alone
        route = Shifted(chain.dynamics, delta, distance=chain.gap(0))
    else:
        route = Shifted(chain.dynamics, delta, shift=chain.shift / chain.used)
    return claim(epsilon_after(chain.k, route), exact)


def published_case(rng):
    chain, delta = Chain.draw(rng), float(10 ** rng.uniform(-8, -2))
    route = published_worst_case(chain.dynamics, lipschitz=chain.lipschitz, n=chain.n, delta=delta)
    return claim(epsilon_after(chain.k, route), chain.epsilon(delta, chain.k))


def converted_case(rng):
    chain, delta = Chain.draw(rng), float(10 ** rng.uniform(-8, -2))
    orders = tuple(1 + np.geomspace(0.1, 100, 12))
    route = Converted(lambda a: SameHorizon(a, proved(chain.renyi(a, 0)), chain.dynamics), delta, orders)
    return claim(epsilon_after(chain.k, route), chain.epsilon(delta, chain.k))


def steps_case(rng):
    """The other way round: at the certified k the exact divergence is at most the target."""
    chain, delta = Chain.draw(rng), 1e-5
    target = float(10 ** rng.uniform(-1.5, 0.5))
    bound = steps_to_unlearn(target, Shifted(chain.dynamics, delta, shift=chain.shift / chain.used))
    if bound.status is not CERTIFICATE:
        return Claim(target, bound.status, 0.0)
    return Claim(target, bound.status, chain.epsilon(delta, int(bound.value)))


def ball_chain(rng):
    """Two starts in [−R, R] under a force that is not convex, on a grid; and δ(ε) after each of a few steps."""
    radius, rate, frequency = 1.0, float(rng.uniform(0.05, 0.4)), float(rng.uniform(1, 4))
    sigma = float(rng.uniform(0.8, 2.0) / np.sqrt(rate))
    dynamics = Langevin(rate, sigma, frequency, loss="bounded", radius=radius, lipschitz=1.0)
    grid = np.linspace(-9 - 3 * sigma, 9 + 3 * sigma, 501)
    held = np.clip(grid, -radius, radius)
    mean = held + rate * np.sin(frequency * held)
    step = np.exp(-((grid[None] - mean[:, None]) ** 2) / (2 * dynamics.variance))
    step /= step.sum(axis=1, keepdims=True)
    ends = rng.choice([-1.0, 1.0]) * np.array([1.0, rng.uniform(-1, 1)])
    p, q = (step[int(np.argmin(abs(grid - end)))] for end in ends)
    return dynamics, step, p, q


def grid_delta(p, q, epsilon):
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


def grid_epsilon(p, q, delta):
    """The smallest ε at which δ is reached, from below."""
    low, high = 0.0, 60.0
    if grid_delta(p, q, 0.0) <= delta:
        return 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if grid_delta(p, q, middle) > delta else (low, middle)
    return low


def hockey_stick_case(rng):
    dynamics, step, p, q = ball_chain(rng)
    delta, k = float(10 ** rng.uniform(-4, -1.3)), int(rng.integers(0, 4))
    start = {}
    if rng.random() < 0.6:  # what is known of the δ after the first step, at some ε
        level = float(rng.choice([0.0, rng.uniform(0, 1)]))
        known = min(1.0, max(grid_delta(p, q, level), 1e-12))
        start = {"start": proved(known) if rng.random() < 0.9 else known, "start_epsilon": level}
        before = 0
    else:
        before = 1
    for _ in range(k):
        p, q = p @ step, q @ step
    route = HockeyStick(dynamics, delta, **start)
    return claim(epsilon_after(k + before, route), grid_epsilon(p, q, delta) - 1e-6)


def conversion_case(rng):
    mu, delta = float(10 ** rng.uniform(-2, 1)), float(10 ** rng.uniform(-8, -1))
    status = str(rng.choice(["certificate", "estimate", "heuristic"]))
    exact = gaussian_epsilon(mu, delta)
    if rng.random() < 0.5:
        return claim(epsilon_at_delta(delta, mu=mu, status=status)[0], exact * (1 - 1e-9))
    orders = sorted(float(order) for order in 1 + 10 ** rng.uniform(-1, 2, size=3))
    bound, _ = epsilon_at_delta(
        delta, alphas=orders, divergences=[order * mu**2 / 2 for order in orders], status=status
    )
    return claim(bound, exact)


def given_case(rng):
    status = Status(rng.choice(["certificate", "estimate", "heuristic"]))
    value = float(rng.uniform(0, 5))
    return claim(given_bound(value, "loss", status), value)


# --- The certificate for logistic regression, on a grid

GRID = np.linspace(-9, 9, 901)


def logistic_law(signs, x, dynamics, steps, start=None):
    eta, m = dynamics["learning_rate"], dynamics["l2"]
    gradient = (-signs * x * expit(-signs * x * GRID[:, None])).mean(axis=1)
    mean = GRID - eta * (gradient + m * GRID)
    kernel = np.exp(-((GRID[None] - mean[:, None]) ** 2) / (4 * eta * dynamics["sigma"] ** 2))
    kernel /= kernel.sum(axis=1, keepdims=True)
    law = np.zeros(GRID.size) if start is None else start
    if start is None:
        law[GRID.size // 2] = 1.0
    for _ in range(steps):
        law = law @ kernel
    return law


def certify_case(rng):
    """One random example of a random line of examples: k steps of unlearning against the recipe run without it."""
    n = int(rng.integers(8, 60))
    x = np.clip(rng.normal(0.4, 0.5, n), -1, 1)
    labels = np.where(rng.random(n) < rng.uniform(0.02, 0.9), 1.0, -1.0)
    labels[:2] = 1.0, -1.0
    problem = Problem.from_labels("line", x[:, None], labels)
    result = certify(
        problem,
        epsilon=float(rng.uniform(0.3, 3)),
        sigma=float(rng.uniform(0.1, 0.5)),
        l2=float(rng.uniform(0.02, 0.2)),
        learning_rate=None if rng.random() < 0.5 else float(rng.uniform(0.5, 3)),
        steps=15,
        runs=6,
        attack_models=0,
        seed=int(rng.integers(1000)),
    )
    position = int(rng.integers(n))
    k = result.steps.values[position]
    if not np.isfinite(k):
        sole = np.sum(labels == labels[position]) == 1
        assert sole
        return Claim(np.inf, result.steps.status, 0.0)
    rest = np.arange(n) != position
    trained = logistic_law(labels, x, result.settings, 15)
    unlearned = logistic_law(labels[rest], x[rest], result.settings, int(k), trained)
    retrained = logistic_law(labels[rest], x[rest], result.settings, 15 + int(k))
    return Claim(
        float(result.epsilon[position]),
        result.steps.status,
        grid_epsilon(unlearned, retrained, result.settings["delta"]) - 1e-6,
    )


CASES = {
    "constant_norms.constant_loss": (loss_case, 260),
    "privacy_loss.privacy_loss": (scores_case, 200),
    "privacy_loss.privacy_losses": (scores_case, 20),
    "privacy_loss.worst_case_loss": (worst_case_case, 200),
    "constant_norms.constant_group_loss": (group_case, 150),
    "group.group_loss": (group_case, 60),
    "group.published_group_loss": (group_case, 60),
    "convergence.SameHorizon": (same_horizon_case, 300),
    "convergence.Corollary": (corollary_case, 300),
    "convergence.Converted": (converted_case, 100),
    "convergence.epsilon_after": (convex_case, 200),
    "convergence.steps_to_unlearn": (steps_case, 200),
    "shifted.Shifted": (shifted_case, 300),
    "shifted.HockeyStick": (hockey_stick_case, 120),
    "worst_case.published_worst_case": (published_case, 200),
    "worst_case._Published": (published_case, 20),
    "worst_case.horizon_gap": (horizon_case, 100),
    "routes.epsilon_at_delta": (conversion_case, 200),
    "routes.given_bound": (given_case, 20),
    "certification.certify": (certify_case, 20),
}
"""Every function and class that may answer with a status, how to draw a case of it, and how many to draw."""
NEVER_A_CERTIFICATE = {"constant_norms.constant_group_loss", "group.group_loss", "group.published_group_loss"}
"""Except for an empty group."""


def answers():
    """What the code has: functions that return a status (or a bound without one), and routes."""
    names = set()
    for package in (remanence.theory, remanence.certify):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            for name, member in inspect.getmembers(module):
                if getattr(member, "__module__", None) != info.name:
                    continue
                returned = str(getattr(member, "__annotations__", {}).get("return", ""))
                stated = any(word in returned for word in ("Bound", "Scores", "Certification", "Converted"))
                is_route = inspect.isclass(member) and {"epsilon", "furthest"} <= set(dir(member))
                if (inspect.isfunction(member) and stated) or (is_route and not _is_protocol(member)):
                    names.add(f"{info.name.rsplit('.', 1)[1]}.{name}")
    return names


def _is_protocol(member):
    return getattr(member, "_is_protocol", False)


def test_everything_that_answers_with_a_status_has_cases():
    helpers = {"pull_bounds.bound_pulls"}
    assert answers() - helpers == set(CASES) - {"worst_case.horizon_gap"}
    assert sum(count for _, count in CASES.values()) >= 2000


def violated(claims):
    return [
        entry
        for entry in claims
        if entry.status is CERTIFICATE and not entry.value * (1 + SLACK) + 1e-12 >= entry.exact
    ]


@pytest.mark.parametrize("name", CASES)
def test_no_certificate_is_below_the_exact_divergence(name):
    draw, count = CASES[name]
    rng = np.random.default_rng(sorted(CASES).index(name))
    with np.errstate(over="ignore"):
        claims = [draw(rng) for _ in range(count)]
    assert violated(claims) == []
    statuses = Counter(entry.status for entry in claims)
    useful = sum(entry.status is CERTIFICATE and entry.exact > 0 for entry in claims)
    assert name in NEVER_A_CERTIFICATE or useful >= count // 4, statuses
    if name in NEVER_A_CERTIFICATE:
        assert all(entry.exact == 0 for entry in claims if entry.status is CERTIFICATE)


def test_the_gate_sees_what_it_is_for():
    """The three gaps that an audit found, as they would be without their remedies."""
    rng = np.random.default_rng(0)
    wrong = []
    for _ in range(100):
        chain, alpha = Chain.draw(rng), draw_alpha(rng)
        _, _, exact = corollary_terms(chain, alpha)
        rate = float(np.exp(chain.dynamics.log_rate()))
        nothing = Corollary(alpha, proved(4 * chain.renyi(alpha, 0)), rate, proved(0.0), proved(0.0))
        wrong.append(claim(epsilon_after(chain.k, nothing), exact))
    assert len(violated(wrong)) > 20


# --- The commands


def answer(capsys, arguments, key="value"):
    assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
    document = json.loads(capsys.readouterr().out)
    value = document[key]
    return np.inf if value is None else float(value), Status(document["status"])


def options(**named):
    return [part for name, value in named.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def route_command(rng, route):
    """Options of a route, and the exact ε after k steps as a function of δ."""
    chain, alpha = Chain.draw(rng), draw_alpha(rng)
    if route == "hockey-stick":
        dynamics, step, p, q = ball_chain(rng)
        given = options(
            route=route,
            learning_rate=dynamics.learning_rate,
            sigma=dynamics.sigma,
            smoothness=dynamics.smoothness,
            radius=1.0,
            lipschitz=1.0,
            delta=1e-2,
        )

        def exact(k):
            moved = np.linalg.matrix_power(step, max(k - 1, 0))
            return grid_epsilon(p @ moved, q @ moved, 1e-2) - 1e-6

        return given, int(rng.integers(1, 4)), exact
    if route == "same-horizon":
        start = options(initial_variance=chain.start, alpha=alpha, loss=chain.renyi(alpha, 0))
        known = options(status="certificate") if rng.random() < 0.9 else []
        return [*chain.options(route), *start, *known], chain.k, lambda k: chain.renyi(alpha, k)
    if route == "corollary":
        return corollary_command(rng, chain, alpha)
    given = [*chain.options(route), *options(lipschitz=chain.lipschitz, n=chain.n, delta=1e-6)]
    return given, chain.k, lambda k: chain.epsilon(1e-6, k)


def corollary_command(rng, chain, alpha):
    far, near, _ = corollary_terms(chain, alpha)
    if rng.random() < 0.5 and np.isfinite(far + near):
        terms = options(far=far, near=near)
    else:  # a ball that the noise does not leave: both terms are computed
        chain = Chain(**{**vars(chain), "start": 0.0, "offset": 0.0, "steps": chain.steps + 5})
        terms = options(radius=40 * np.sqrt(chain.stationary))
    loss = options(alpha=alpha, loss=4 * chain.renyi(alpha, 0), status="certificate")
    return [*chain.options("corollary"), *loss, *terms], chain.k, lambda k: to_t_steps(chain, alpha, k)


def epsilon_command(rng, capsys, route):
    given, k, exact = route_command(rng, route)
    return Claim(*answer(capsys, ["bound", "epsilon", str(k), *given]), exact(k))


def steps_command(rng, capsys, route):
    given, _, exact = route_command(rng, route)
    target = float(10 ** rng.uniform(-1, 0.5))
    k, status = answer(capsys, ["bound", "steps", str(target), *given])
    reached = exact(int(k)) if status is CERTIFICATE and not (route == "hockey-stick" and not k) else 0.0
    return Claim(target, status, reached)


def loss_command(rng, capsys, route):
    alpha, rate, ratio, steps, exact = draw_training(rng)
    given = options(alpha=alpha, sampling_rate=rate, ratio=ratio, steps=steps)
    known = ["--everywhere"] if rng.random() < 0.8 else []
    return Claim(*answer(capsys, ["bound", "loss", *given, *known]), exact)


def group_command(rng, capsys, route):
    ratio, steps, size = float(10 ** rng.uniform(-2, -0.5)), int(rng.integers(1, 6)), int(rng.integers(0, 3))
    given = options(
        sampling_rate=1.0, ratio=ratio, size=size, steps=steps, similarity=1.0, method="published"
    )
    return Claim(*answer(capsys, ["bound", "group", *given]), 4 * steps * (size * ratio) ** 2)


def convert_command(rng, capsys, route):
    mu = float(10 ** rng.uniform(-2, 1))
    known = options(status="certificate") if rng.random() < 0.7 else []
    exact = gaussian_epsilon(mu, 1e-6) * (1 - 1e-9)
    return Claim(*answer(capsys, ["bound", "convert", *options(mu=mu, delta=1e-6), *known]), exact)


COMMANDS = {
    "loss": loss_command,
    "group": group_command,
    "steps": steps_command,
    "epsilon": epsilon_command,
    "convert": convert_command,
}


def test_every_calculator_has_cases():
    assert {name for name in bound_command.app if not name.startswith("-")} == set(COMMANDS)


@pytest.mark.parametrize("route", get_args(RouteName))
@pytest.mark.parametrize("command", ["epsilon", "steps"])
def test_no_route_of_the_command_line_is_below_the_exact_divergence(capsys, command, route):
    rng = np.random.default_rng(len(route))
    with np.errstate(over="ignore"):
        claims = [COMMANDS[command](rng, capsys, route) for _ in range(30)]
    assert violated(claims) == []
    assert sum(entry.status is CERTIFICATE for entry in claims) >= 5, claims


@pytest.mark.parametrize("command", ["loss", "group", "convert"])
def test_no_calculator_is_below_the_exact_divergence(capsys, command):
    rng = np.random.default_rng(3)
    claims = [COMMANDS[command](rng, capsys, "") for _ in range(40)]
    assert violated(claims) == []
    assert any(entry.status is CERTIFICATE for entry in claims)


STRONG = options(learning_rate=3.8, sigma=0.003, smoothness=0.26, strong_convexity=0.01)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (options(route="corollary", loss=2, alpha=2), "--far"),
        (options(route="corollary", loss=2, alpha=2, far=0.1), "--near"),
        (options(route="corollary", loss=2, alpha=2, train_steps=50), "--radius"),
        (options(route="same-horizon", loss=2, train_steps=50), "--initial-variance"),
    ],
)
def test_a_route_without_all_its_terms_is_refused_in_one_sentence(capsys, arguments, missing):
    for command in ("epsilon", "steps"):
        assert run(["bound", command, "200", *STRONG, *arguments]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert missing in said
        assert "certificate" not in said


def test_the_hockey_stick_does_not_reuse_its_start_at_a_smaller_epsilon():
    """δ₀ = 1e-6 at ε = 3 says nothing at ε = 0.01: two Gaussians 0.9 apart have that δ₀ and are not forgotten."""
    dynamics = Langevin(0.1, 2.0, 1.0, loss="bounded", radius=1.0, lipschitz=1.0)
    with pytest.raises(Exception, match="`start_epsilon`"):
        HockeyStick(dynamics, 1e-5, start=1e-6)
    route = HockeyStick(dynamics, 1e-5, start=proved(1e-6), start_epsilon=3.0)
    assert route.delta_after(0, 2.9) == 1.0
    assert route.epsilon(0) == pytest.approx(3.0, abs=1e-5)
    mu = 0.9
    assert gaussian_delta(mu, 3.0) > 1e-6  # such a pair exists at a smaller distance
    assert (
        epsilon_after(0, HockeyStick(dynamics, 1e-5, start=1e-6, start_epsilon=3.0)).status is Status.ESTIMATE
    )


def test_a_plain_number_is_an_estimate():
    chain = Chain.draw(np.random.default_rng(0))
    assert SameHorizon(2.0, 1.0, chain.dynamics).status is Status.ESTIMATE
    assert Corollary(2.0, 1.0, 0.1, proved(0.1), proved(0.1)).status is Status.ESTIMATE
    assert Corollary(2.0, proved(1.0), 0.1, 0.1, proved(0.1)).status is Status.ESTIMATE
    assert epsilon_at_delta(mu=0.2)[0].status is Status.ESTIMATE
    assert RouteSettings(loss=1.0, train_steps=5, initial_variance=0.0).make().status is Status.ESTIMATE
    stationary = SameHorizon(2.0, proved(1.0), Langevin(3.8, 0.003, 0.26, 0.01))
    assert stationary.status is Status.ESTIMATE
    assert any("stationary" in sentence for sentence in stationary.assumptions)
