"""Certify how many steps forget each example, run one of them, and attack it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.certify.absorption import Absorption, Pulls
from remanence.certify.attack import Attack, attack, best_direction
from remanence.certify.bound import PathBound
from remanence.certify.descent import Descent
from remanence.certify.problem import Problem
from remanence.errors import InputError
from remanence.theory.convergence import published_worst_case, steps_to_unlearn
from remanence.theory.conversion import check_delta
from remanence.theory.langevin import Langevin
from remanence.theory.shifted import Shifted
from remanence.types import Scores, Status, check_positive

Floats = NDArray[np.float64]
Note = Callable[[str], None]

_HELD = 1 << 24
"""Numbers held at once while pulls add up; runs are taken in groups that fit."""


@dataclass(frozen=True, eq=False)
class Certification:
    """What was certified, for whom, and what an attack made of it.

    Args:
        steps: certified k of every example, with status and reasons.
        epsilon: the certified ε of every example at its k.
        published: k of the published worst case, for every example alike.
        shifted: k of the best worst case (shifted divergence).
        attacked: position of the example that was attacked.
        before: the attack on its trained model, without unlearning.
        after: the attack after its certified k steps.
        linear_mu: at the attacked example and its k, the linearised distance, which F must not fall below.
        mean_pull: at the attacked example and its k, the certified bound F̄.
        accuracy: of one trained model on its own training data.
        settings: every number that went in.
    """

    steps: Scores
    epsilon: Floats
    published: float
    shifted: float
    attacked: int
    before: Attack | None
    after: Attack | None
    linear_mu: float
    mean_pull: float
    accuracy: float
    settings: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """The result as plain numbers."""
        levels = {"min": 0, "p10": 10, "median": 50, "p90": 90, "max": 100}
        quantiles = {
            name: float(np.percentile(self.steps.values, q, method="higher")) for name, q in levels.items()
        }
        worst = self.attacked
        return {
            "status": self.steps.status.value,
            "reasons": list(self.steps.reasons),
            "k_instance": quantiles,
            "k_published": _finite(self.published),
            "k_shifted": _finite(self.shifted),
            "share_needing_no_step": float(np.mean(self.steps.values == 0)),
            "epsilon_certified": float(self.epsilon[worst]),
            "epsilon_measured": self.after.epsilon if self.after else None,
            "epsilon_measured_before": self.before.epsilon if self.before else None,
            "attack": {
                "id": self.steps.ids[worst].item(),
                "k": int(self.steps.values[worst]),
                "linear_mu": self.linear_mu,
                "certified_mean_pull": self.mean_pull,
                "models": self.after.models if self.after else 0,
                "unlearned_hits": self.after.unlearned_hits if self.after else None,
                "retrained_hits": self.after.retrained_hits if self.after else None,
            },
            "accuracy": self.accuracy,
            **self.settings,
        }


def certify(
    problem: Problem,
    *,
    epsilon: float = 0.5,
    delta: float = 1e-5,
    sigma: float | None = None,
    l2: float = 0.002,
    steps: int = 400,
    runs: int = 24,
    failure: float = 1e-6,
    simultaneous: bool = True,
    attack_models: int = 500,
    seed: int = 0,
    note: Note = lambda sentence: None,
) -> Certification:
    """Certified unlearning steps for every example of a logistic regression trained by noisy gradient descent.

    Statement:
        with probability 1 − β over R training runs, for every example x: after k(x) steps on the data without x,
        P(unlearned ∈ E) ≤ e^ε P(retrained T + k steps ∈ E) + δ for every event E.

    Symbols: `epsilon` = ε, `delta` = δ, `failure` = β, `runs` = R, `steps` = T, `l2` = m.

    Args:
        problem: features and labels.
        epsilon: the target ε.
        delta: the target δ.
        sigma: noise σ; 5/n by default.
        l2: the regulariser m.
        steps: training steps T.
        runs: training runs R from which the certificate is computed; not the run that is released.
        failure: the chance β that the statement is wrong.
        simultaneous: one β for all examples and all k; otherwise one for each.
        attack_models: models of each kind for the attack on the hardest example; 0 for none.
        seed: of everything.
        note: called with a sentence before each part.

    Assumptions: full batches, real noise, a learning rate 1/L that is public; removal of one example, own-size means.

    Departs from the paper: see `PathBound`; the target is retraining for T + k steps.

    Source: ours (docs/theory/certificate.md).

    Checked by: tests/oracles/test_theory_certificate.py
    """
    _check(epsilon, delta, steps, runs, failure, attack_models)
    n, smooth = len(problem), problem.smoothness()
    noise = 5.0 / n if sigma is None else sigma
    dynamics = Langevin(1 / (smooth + l2), noise, smooth + l2, l2, steps=steps)
    descent = Descent(problem, dynamics)
    longest = float(np.linalg.norm(problem.features, axis=1).max()) * np.sqrt(problem.outputs)
    published = steps_to_unlearn(epsilon, published_worst_case(dynamics, lipschitz=longest, n=n, delta=delta))
    shift = dynamics.learning_rate * 2 * longest / n
    shifted = steps_to_unlearn(epsilon, Shifted(dynamics, delta, shift=shift))
    grid = step_grid(shifted.value)
    note(f"Following {n} examples through {runs} training runs of {steps} steps.")
    schedules = [Absorption(dynamics.contraction, steps, int(k)) for k in grid]
    means, weights = mean_pulls(descent, schedules, runs, np.random.default_rng((seed, 0)))
    lips = _lipschitz(problem, dynamics, schedules, smooth)
    chance = failure / (n * len(grid)) if simultaneous else failure
    upper = means + lips * np.sqrt(2 * np.log(1 / chance) / runs)
    chosen = _first_certified(PathBound(delta), upper, lips, epsilon)
    k, certified = _with_worst_case(PathBound(delta), grid, chosen, upper, lips, shifted.value, epsilon)
    hardest = int(np.lexsort((upper[-1], k))[-1])
    note(f"Attacking example {problem.ids[hardest]} with {attack_models} models of each kind.")
    before, after = _attacks(descent, hardest, int(k[hardest]), delta, attack_models, seed)
    aim = best_direction(descent, hardest, steps, int(k[hardest]))
    at = int(np.searchsorted(grid, k[hardest]))
    return Certification(
        steps=Scores(
            "certified_steps", problem.ids, k, {}, Status.CERTIFICATE, _reasons(chance, simultaneous)
        ),
        epsilon=certified,
        published=published.value,
        shifted=shifted.value,
        attacked=hardest,
        before=before,
        after=after,
        linear_mu=aim.mu,
        mean_pull=float(upper[min(at, len(grid) - 1), hardest]),
        accuracy=problem.accuracy(weights),
        settings={
            "data": problem.name,
            "n": n,
            "d": problem.features.shape[1],
            "outputs": problem.outputs,
            "epsilon": epsilon,
            "delta": delta,
            "sigma": noise,
            "l2": l2,
            "learning_rate": dynamics.learning_rate,
            "steps": steps,
            "runs": runs,
            "failure": failure,
            "simultaneous": simultaneous,
            "seed": seed,
        },
    )


def step_grid(worst: float, most: int = 32) -> NDArray[np.int64]:
    """The k that are tried: half spaced geometrically, half evenly, up to the worst case (or 10,000)."""
    top = int(min(worst, 10_000))
    spread = np.concatenate([np.geomspace(1, max(top, 1), most // 2), np.linspace(0, top, most // 2)])
    return np.unique(np.minimum(np.round(spread), top).astype(np.int64))


def mean_pulls(
    descent: Descent, schedules: list[Absorption], runs: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The mean of F over runs, [schedules, n], and one run's weights [d, C]."""
    n, outputs = len(descent.problem), descent.problem.outputs
    group = max(1, min(runs, _HELD // (2 * n * outputs * len(schedules))))
    total = np.zeros((len(schedules), n))
    for start in range(0, runs, group):
        size = min(group, runs - start)
        pulls = [Pulls.start(each, (n, size * outputs)) for each in schedules]
        scratch = np.empty((n, size * outputs))
        last = np.zeros(0)
        for t, (last, shift) in enumerate(descent.deviations(schedules[0].steps, size, rng)):  # noqa: B007
            for each in pulls:
                each.add(t, shift, scratch)
        weights = last[:, :outputs]
        for i, each in enumerate(pulls):
            by_output = each.finish().reshape(n, size, outputs).sum(axis=2)
            total[i] += np.sqrt(by_output / descent.dynamics.variance).sum(axis=1)
    return total / runs, weights


def _lipschitz(problem: Problem, dynamics: Langevin, schedules: list[Absorption], smooth: float) -> Floats:
    """K of every schedule and example: η(‖x‖²/4 + L)/(n − 1) times the schedule's amplification."""
    own = np.square(problem.features).sum(axis=1) / 4
    each = dynamics.learning_rate * (own + smooth) / (len(problem) - 1)
    return np.stack([schedule.amplification * each for schedule in schedules])


def _first_certified(bound: PathBound, upper: Floats, lips: Floats, epsilon: float) -> NDArray[np.int64]:
    """For every example the first grid position whose F̄ meets the target; one past the end where none does."""
    met = np.stack([upper[i] <= bound.threshold(lips[i], epsilon) for i in range(len(upper))])
    return np.where(met.any(axis=0), met.argmax(axis=0), len(upper))


def _with_worst_case(
    bound: PathBound,
    grid: NDArray[np.int64],
    chosen: NDArray[np.int64],
    upper: Floats,
    lips: Floats,
    worst: float,
    epsilon: float,
) -> tuple[Floats, Floats]:
    """k and ε of every example; where no path-wise k is found, the worst case of shifted divergence stands in."""
    found = chosen < len(grid)
    at = np.where(found, chosen, 0)
    columns = np.arange(upper.shape[1])
    k = np.where(found, grid[at].astype(np.float64), worst)
    certified = bound.epsilon(upper[at, columns], lips[at, columns])
    return np.minimum(k, worst), np.where(found & (k <= worst), np.minimum(certified, epsilon), epsilon)


def _attacks(
    descent: Descent, position: int, k: int, delta: float, models: int, seed: int
) -> tuple[Attack | None, Attack | None]:
    if models == 0:
        return None, None
    rng = np.random.default_rng((seed, 1))
    total = descent.dynamics.steps or 0
    return attack(descent, position, steps=total, k=k, delta=delta, models=models, rng=rng)


def _reasons(chance: float, simultaneous: bool) -> tuple[str, ...]:
    scope = "all examples and all k at once" if simultaneous else "each example and k by itself"
    return (
        "Strongly convex loss, full batches, real noise, exact contraction 1 − ηm.",
        f"The mean over runs is bounded by Gaussian concentration, with failure {chance:.2g} a bound, for {scope}.",
        "(ε, δ) in one direction, towards retraining for T + k steps; the runs are not the released one.",
    )


def _check(epsilon: float, delta: float, steps: int, runs: int, failure: float, models: int) -> None:
    check_positive("epsilon", epsilon)
    check_delta(delta)
    for name, value, least in (("steps", steps, 2), ("runs", runs, 1), ("attack_models", models, 0)):
        if value < least or int(value) != value:
            raise InputError(f"`{name}` must be a whole number of at least {least}; got {value}.")
    if not 0 < failure < 1:
        raise InputError(f"`failure` must be between 0 and 1, both excluded; got {failure}.")


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
