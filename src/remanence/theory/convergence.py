"""Steps to unlearn: routes from a privacy loss or a worst case to ε after k steps, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from remanence.errors import InputError
from remanence.theory.conversion import ORDERS, check_delta, renyi_to_epsilon
from remanence.theory.justification import VACUOUS_ABOVE, weakest
from remanence.theory.langevin import Langevin
from remanence.theory.sampled_gaussian import check_alpha
from remanence.types import Bound, Status, check_choice, check_positive


class Route(Protocol):
    """A bound on the remaining influence of the forgotten examples after k unlearning steps."""

    formula: ClassVar[str]
    furthest: ClassVar[int]
    """The largest k of the search."""

    @property
    def status(self) -> Status:
        """The status of the bound if its assumptions hold."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The sentences that must hold."""

    def epsilon(self, k: int) -> float:
        """The bound after k steps; nonincreasing in k."""


def epsilon_after(k: int, route: Route) -> Bound:
    """The bound of a route after k unlearning steps: the inverse of `steps_to_unlearn`.

    Checked by: tests/oracles/test_theory_convergence.py
    """
    if k < 0 or int(k) != k:
        raise InputError(f"`k` must be a whole number of at least 0; got {k}.")
    value = route.epsilon(int(k))
    status = Status.VACUOUS if value > VACUOUS_ABOVE else route.status
    return Bound(value, status, route.assumptions, route.formula)


def steps_to_unlearn(target: float, route: Route) -> Bound:
    """The fewest steps after which a route's bound is at most the target; infinite and vacuous if there are none.

    Checked by: tests/oracles/test_theory_convergence.py
    """
    check_positive("target", target)
    low, high = -1, 1
    if route.epsilon(0) <= target:
        high = 0
    while high and route.epsilon(high) > target:
        low, high = high, 2 * high
        if high > route.furthest:
            reason = f"No k up to {route.furthest:.3g} reaches the target {target:g}."
            return Bound(np.inf, Status.VACUOUS, (*route.assumptions, reason), route.formula)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if route.epsilon(middle) <= target else (middle, high)
    return Bound(float(high), route.status, route.assumptions, route.formula)


def corollary_constants(alpha: float, source: Literal["main", "appendix"] = "main") -> tuple[float, float]:
    """B_α and C_α of the paper's corollary, as its main text states them or as its appendix derives them.

    Statement:
        main: (2α − 1/2)/(2α − 2), (2α − 1)/(2α − 2);
        appendix: (α − 1/2)/(α − 1) · (2α − 1/2)/(2α − 1), (α − 1/2)/(α − 1). They are equal.

    Symbols: `alpha` = α.

    Assumptions: none.

    Departs from the paper: not at all.

    Source: the paper, Corollary "unl_dyn" and its proof.

    Checked by: tests/oracles/test_theory_convergence.py
    """
    check_alpha(alpha)
    check_choice("source", source, ("main", "appendix"))
    if source == "main":
        return (2 * alpha - 0.5) / (2 * alpha - 2), (2 * alpha - 1) / (2 * alpha - 2)
    outer = (alpha - 0.5) / (alpha - 1)
    return outer * (2 * alpha - 0.5) / (2 * alpha - 1), outer


@dataclass(frozen=True)
class Corollary:
    """The paper's corollary: the target is retraining for T steps.

    Statement:
        ε*(k) = (B_α P(x, 4α) + C_α ε_{4α−1}) e^{−Ck/2α} + ε_{2α−1}.

    Symbols: `loss` = P(x, 4α), `rate` = C per step (`Langevin.log_rate` computes it), `far` = ε_{4α−1} =
        D_{4α−1}(T steps on D′ ‖ stationary law on D′), `near` = ε_{2α−1} = D_{2α−1}(the same laws, reversed);
        `horizon_gap` bounds both for a projected chain.

    Assumptions: Lipschitz, smooth loss; step size as in Chien et al. 2024, Theorem 3.2. `far` and `near` are not
        zero for any finite T, so they have no default. Plain numbers count as estimates; a `Bound` has its status.

    Departs from the paper: not at all; `SameHorizon` is simpler and tighter.

    Source: the paper, Corollaries "unl_dyn" and "main".

    Checked by: tests/oracles/test_theory_convergence.py
    """

    alpha: float
    loss: Bound | float
    rate: float
    far: Bound | float
    near: Bound | float
    constants: Literal["main", "appendix"] = "main"
    formula: ClassVar[str] = "paper's corollary, T-step target"
    furthest: ClassVar[int] = 1 << 60

    def __post_init__(self) -> None:
        corollary_constants(self.alpha, self.constants)
        check_positive("rate", self.rate)
        for name in ("loss", "far", "near"):
            check_level(name, value_of(getattr(self, name)))

    @property
    def status(self) -> Status:
        return weakest(*(status_of(given) for given in (self.loss, self.far, self.near)))

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            *inherited(self.loss, "privacy loss"),
            *inherited(self.far, "divergence `far`"),
            *inherited(self.near, "divergence `near`"),
            f"Without the examples, every step contracts towards the stationary law at rate {self.rate:.3g} or more.",
            f"Rényi divergence of order {self.alpha:g} to retraining for T steps.",
        )

    def epsilon(self, k: int) -> float:
        b, c = corollary_constants(self.alpha, self.constants)
        start = b * value_of(self.loss) + c * value_of(self.far)
        remaining, near = start * np.exp(-self.rate * k / (2 * self.alpha)), value_of(self.near)
        # `near` is approached and never reached, however small the remaining part
        return float(max(remaining + near, np.nextafter(near, np.inf) if start else near))


@dataclass(frozen=True)
class SameHorizon:
    """Against retraining for T + k steps: both laws pass through the same k steps.

    Statement:
        D_α(unlearned after k ‖ retrained T + k steps) ≤ e^{−(1/α) Σ_j R_j} P(x, α).

    Symbols: `loss` = P(x, α), Σ R_j = `dynamics.log_decay(k)`.

    Assumptions: those of `dynamics`; the loss bounds D_α after T steps. The rate depends on how spread the retrained
        chain is, so the start of training must be known (`dynamics.initial_variance`, 0 for a fixed point). Without
        it and without T, the chain is taken to be stationary, and the result is an estimate.

    Departs from the paper: the target is T + k steps instead of T, so there is no triangle inequality, the
        order is α instead of 4α, the rate 1/α instead of 1/2α, and no constant term remains.

    Source: new here, from Chien et al. 2024, Theorem 3.2.

    Checked by: tests/oracles/test_theory_convergence.py
    """

    alpha: float
    loss: Bound | float
    dynamics: Langevin
    formula: ClassVar[str] = "contraction, T+k-step target"
    furthest: ClassVar[int] = 1 << 60

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_level("loss", value_of(self.loss))
        if self.dynamics.steps is not None and not self._known_start:
            raise InputError(
                "`initial_variance` must be given for training of a known number of steps: the variance of the initial "
                "weights, 0 for a fixed start. The rate of contraction depends on it."
            )

    @property
    def _known_start(self) -> bool:
        """Projection onto a ball bounds the spread whatever the start."""
        return self.dynamics.loss == "bounded" or self.dynamics.initial_variance is not None

    @property
    def status(self) -> Status:
        return status_of(self.loss) if self._known_start else weakest(status_of(self.loss), Status.ESTIMATE)

    @property
    def assumptions(self) -> tuple[str, ...]:
        stationary = "No initial variance is given: the retrained chain is taken to be stationary."
        return (
            *inherited(self.loss, "privacy loss"),
            f"A {self.dynamics.loss} loss.",
            *(() if self._known_start else (stationary,)),
            f"Rényi divergence of order {self.alpha:g} to retraining for T + k steps.",
        )

    def epsilon(self, k: int) -> float:
        return float(value_of(self.loss) * np.exp(-self.dynamics.log_decay(k) / self.alpha))


@dataclass(frozen=True)
class Converted:
    """A Rényi route at many orders, converted to (ε, δ) at the best of them."""

    route_at: Callable[[float], Route]
    delta: float
    orders: Sequence[float] = ORDERS
    formula: ClassVar[str] = "Rényi to (ε, δ)"
    furthest: ClassVar[int] = 1 << 60

    def __post_init__(self) -> None:
        check_delta(self.delta)

    @property
    def status(self) -> Status:
        return weakest(*(self.route_at(order).status for order in self.orders))

    @property
    def assumptions(self) -> tuple[str, ...]:
        route = self.route_at(self.orders[0])
        conversion = f"{route.formula}, at the best of {len(self.orders)} orders; δ = {self.delta:g}."
        return (*route.assumptions, conversion)

    def epsilon(self, k: int) -> float:
        divergences = [self.route_at(order).epsilon(k) for order in self.orders]
        return renyi_to_epsilon(self.orders, divergences, self.delta)[0]


def value_of(given: Bound | float) -> float:
    """The number itself."""
    return given.value if isinstance(given, Bound) else float(given)


def status_of(given: Bound | float) -> Status:
    """The status of a bound; of a plain number nobody knows where it comes from, so it is an estimate."""
    return given.status if isinstance(given, Bound) else Status.ESTIMATE


def inherited(given: Bound | float, name: str) -> tuple[str, ...]:
    """The assumptions of a bound; for a plain number, that it is one."""
    return given.assumptions if isinstance(given, Bound) else (f"The given {name} is taken as it is.",)


def check_level(name: str, value: float) -> None:
    """Raise for a divergence that is negative or NaN."""
    if not value >= 0:
        raise InputError(f"`{name}` must not be negative or NaN; got {value}.")
