"""Options that describe a route from training to unlearning, shared by `bound steps` and `bound epsilon`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True)
class RouteOptions:
    """A route from training to unlearning, and the numbers it needs."""

    route: Literal["corollary", "same-horizon", "published", "shifted", "hockey-stick"] = "same-horizon"
    """`corollary` is the paper's (T-step target); the others compare with retraining for T + k steps."""
    learning_rate: float = 1.0
    """η."""
    sigma: float = 0.01
    """Noise: each step adds variance 2ησ²."""
    smoothness: float = 0.25
    """L."""
    strong_convexity: float = 0.0
    """m; 0 for a loss that is only convex."""
    nonconvex: Annotated[bool, Parameter(negative="")] = False
    """The loss is only bounded, on a ball of `radius` with gradients up to `lipschitz`."""
    train_steps: int | None = None
    """T; a chain at rest by default."""
    radius: float | None = None
    """R of the projection."""
    lipschitz: float | None = None
    """M, a bound on an example's gradient."""
    n: int | None = None
    """Examples, for `published` and `shifted`."""
    alpha: float = 8.0
    """Rényi order, for `corollary` and `same-horizon`."""
    loss: float | None = None
    """Privacy loss: at order 4α for `corollary`, at α for `same-horizon`."""
    delta: float = 1e-5
    """δ, for `published`, `shifted` and `hockey-stick`."""
    far: float = 0.0
    """ε_{4α−1} of the corollary."""
    near: float = 0.0
    """ε_{2α−1} of the corollary."""


def route_from(given: RouteOptions) -> Any:
    """The route that the options describe."""
    from remanence.errors import InputError
    from remanence.theory.convergence import Corollary, SameHorizon
    from remanence.theory.langevin import Langevin
    from remanence.theory.shifted import HockeyStick, Shifted
    from remanence.theory.worst_case import published_worst_case

    convex = "strongly convex" if given.strong_convexity > 0 else "convex"
    if (
        convex == "convex"
        and given.train_steps is None
        and given.route != "hockey-stick"
        and not given.nonconvex
    ):
        raise InputError(
            "A convex loss needs `--train-steps` (or give `--strong-convexity`); it was not given."
        )
    dynamics = Langevin(
        given.learning_rate,
        given.sigma,
        given.smoothness,
        given.strong_convexity,
        loss="bounded" if given.nonconvex or given.route == "hockey-stick" else convex,  # type: ignore[arg-type]
        steps=given.train_steps,
        radius=given.radius,
        lipschitz=given.lipschitz,
    )
    if given.route == "corollary":
        rate = float(np.exp(dynamics.log_rate()))
        return Corollary(given.alpha, _needed(given, "loss"), rate, given.far, given.near)
    if given.route == "same-horizon":
        return SameHorizon(given.alpha, _needed(given, "loss"), dynamics)
    if given.route == "hockey-stick":
        return HockeyStick(dynamics, given.delta)
    bound, n = _needed(given, "lipschitz"), int(_needed(given, "n"))
    if given.route == "published":
        return published_worst_case(dynamics, lipschitz=bound, n=n, delta=given.delta)
    return Shifted(dynamics, given.delta, shift=given.learning_rate * 2 * bound / n)


def _needed(given: RouteOptions, name: str) -> float:
    from remanence.errors import InputError

    value = getattr(given, name)
    if value is None:
        raise InputError(f"Route {given.route!r} needs `--{name}`; it was not given.")
    return float(value)
