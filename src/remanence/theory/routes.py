"""A route from training to unlearning, by its name and the numbers that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from remanence.errors import InputError
from remanence.types import Bound, Status, check_choice

if TYPE_CHECKING:
    from remanence.theory.convergence import Route
    from remanence.theory.langevin import Langevin

RouteName = Literal["corollary", "same-horizon", "published", "shifted", "hockey-stick"]
GivenStatus = Literal["certificate", "estimate", "heuristic"]
"""What is known about a number that the caller gives."""


@dataclass(frozen=True)
class RouteSettings:
    """A route from training to unlearning, and the numbers that it needs.

    Args:
        route: Bound to use: `corollary` is the paper's (target: retraining for T steps); the others compare with
            retraining for T + k steps.
        learning_rate: Learning rate η of noisy gradient descent.
        sigma: Noise level σ; each step adds Gaussian noise of variance 2ησ².
        smoothness: Smoothness constant L of the loss.
        strong_convexity: Strong convexity constant m of the loss; 0 for a loss that is only convex.
        nonconvex: The loss is only bounded, on a ball of `radius` with gradients up to `lipschitz`.
        train_steps: Number of training steps T; by default the stationary distribution.
        initial_variance: Variance of the initial weights, 0 for a fixed start; for `same-horizon`.
        radius: Radius R of the ball that the weights are projected onto.
        lipschitz: Bound M on the gradient norm of one example.
        n: Number of training examples, for `published` and `shifted`.
        alpha: Rényi order, for `corollary` and `same-horizon`.
        loss: Privacy loss: at order 4α for `corollary`, at order α for `same-horizon`.
        delta: Target δ, for `published`, `shifted` and `hockey-stick`.
        far: Divergence ε_{4α−1} of the corollary: of T training steps from the stationary distribution. Computed if
            `radius` and `train_steps` are given.
        near: Divergence ε_{2α−1} of the corollary: of the stationary distribution from T training steps. Computed if
            `radius` and `train_steps` are given.
        status: What is known about the given `loss`, `far` and `near`: `certificate` if they are proved bounds.
    """

    route: RouteName = "same-horizon"
    learning_rate: float = 1.0
    sigma: float = 0.01
    smoothness: float = 0.25
    strong_convexity: float = 0.0
    nonconvex: bool = False
    train_steps: int | None = None
    initial_variance: float | None = None
    radius: float | None = None
    lipschitz: float | None = None
    n: int | None = None
    alpha: float = 8.0
    loss: float | None = None
    delta: float = 1e-5
    far: float | None = None
    near: float | None = None
    status: GivenStatus = "estimate"

    def make(self) -> Route:
        """The route."""
        from remanence.theory.convergence import Corollary, SameHorizon
        from remanence.theory.shifted import HockeyStick, Shifted
        from remanence.theory.worst_case import published_worst_case

        check_choice("status", self.status, get_args(GivenStatus))
        dynamics = self._dynamics()
        if self.route == "corollary":
            rate = float(np.exp(dynamics.log_rate()))
            far, near = (self._horizon_gap(name, dynamics) for name in ("far", "near"))
            return Corollary(self.alpha, self._given("loss"), rate, far, near)
        if self.route == "same-horizon":
            return SameHorizon(self.alpha, self._given("loss"), dynamics)
        if self.route == "hockey-stick":
            return HockeyStick(dynamics, self.delta)
        lipschitz, n = self._required("lipschitz"), int(self._required("n"))
        if self.route == "published":
            return published_worst_case(dynamics, lipschitz=lipschitz, n=n, delta=self.delta)
        return Shifted(dynamics, self.delta, shift=self.learning_rate * 2 * lipschitz / n)

    def _dynamics(self) -> Langevin:
        from remanence.theory.langevin import Langevin

        bounded = self.nonconvex or self.route == "hockey-stick"
        convex: Literal["strongly convex", "convex"] = (
            "strongly convex" if self.strong_convexity > 0 else "convex"
        )
        if not bounded and convex == "convex" and self.train_steps is None:
            raise InputError("A convex loss needs `train_steps` (or `strong_convexity`); got neither.")
        return Langevin(
            self.learning_rate,
            self.sigma,
            self.smoothness,
            self.strong_convexity,
            loss="bounded" if bounded else convex,
            steps=self.train_steps,
            initial_variance=self.initial_variance,
            radius=self.radius,
            lipschitz=self.lipschitz,
        )

    def _horizon_gap(self, name: Literal["far", "near"], dynamics: Langevin) -> Bound:
        """The corollary's divergence between T steps and the stationary law: given, or bounded."""
        from remanence.theory.worst_case import horizon_gap

        if getattr(self, name) is not None:
            return self._given(name)
        if self.radius is None or self.train_steps is None:
            raise InputError(
                f"Route 'corollary' needs `{name}`, the divergence between T training steps and the stationary "
                "distribution; or `radius` and `train_steps`, to compute a bound on it."
            )
        order = 4 * self.alpha - 1 if name == "far" else 2 * self.alpha - 1
        reason = f"`{name}` is bounded for weights projected onto a ball of radius {self.radius:g}."
        return Bound(horizon_gap(dynamics, alpha=order), Status.CERTIFICATE, (reason,), "horizon gap")

    def _given(self, name: str) -> Bound:
        """A number as a bound with the status that the caller gives it."""
        return given_bound(self._required(name), name, Status(self.status))

    def _required(self, name: str) -> float:
        value = getattr(self, name)
        if value is None:
            raise InputError(f"Route {self.route!r} needs `{name}`.")
        return float(value)


def given_bound(value: float, name: str, status: Status) -> Bound:
    """A number that the caller gives, with the status that the caller gives it."""
    if status is Status.CERTIFICATE:
        return Bound(value, status, (f"`{name}` is a proved bound, as stated by the caller.",))
    return Bound(value, status, (f"`{name}` is taken as given; nothing says that it is a proved bound.",))


def epsilon_at_delta(
    delta: float = 1e-5,
    *,
    alphas: Sequence[float] = (),
    divergences: Sequence[float] = (),
    mu: float | None = None,
    status: GivenStatus = "estimate",
) -> tuple[Bound, float | None]:
    """Rényi divergences, or the distance of two unit Gaussians, as ε at δ; and the order that gave the best ε.

    Args:
        delta: the probability δ.
        alphas: orders of the divergences.
        divergences: Rényi divergence at each order.
        mu: distance of two unit Gaussians, instead of divergences.
        status: what is known about the divergences or `mu`: `certificate` if they are proved bounds.
    """
    from remanence.theory.conversion import gaussian_epsilon, renyi_to_epsilon

    if (mu is None) == (not alphas):
        raise InputError("Expected either `mu`, or `alphas` with `divergences`.")
    one_way = "P(E) ≤ e^ε Q(E) + δ, in the direction of the divergence only."
    check_choice("status", status, get_args(GivenStatus))
    given = Status(status)
    if mu is not None:
        assumptions = (*given_bound(mu, "mu", given).assumptions, one_way)
        return Bound(gaussian_epsilon(mu, delta), given, assumptions, "Gaussian differential privacy"), None
    value, best = renyi_to_epsilon(alphas, divergences, delta)
    assumptions = (*given_bound(value, "divergences", given).assumptions, one_way)
    return Bound(value, given, assumptions, "Rényi to (ε, δ), best order"), best
