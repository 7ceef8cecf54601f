"""Certify the unlearning steps of each example, and attack the hardest one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.certify.descent import Descent
from remanence.certify.linear_attack import LinearAttackResult, best_direction, linear_attack
from remanence.certify.path_bound import PathBound
from remanence.certify.problem import PUBLIC_SMOOTHNESS, Problem
from remanence.certify.pull_bounds import bound_pulls
from remanence.errors import InputError
from remanence.theory.convergence import steps_to_unlearn
from remanence.theory.conversion import check_delta
from remanence.theory.langevin import Langevin
from remanence.theory.shifted import Shifted
from remanence.theory.worst_case import published_worst_case
from remanence.types import Scores, Status, check_positive

Floats = NDArray[np.float64]
Note = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Certification:
    """The certified steps of every example, and the result of an attack on the hardest.

    Args:
        steps: certified k of every example, with status and reasons; infinite where there is no certificate.
        epsilon: the certified ε of every example at its k; infinite where there is no certificate.
        published: k of the published worst case, the same for every example.
        shifted: k of the tightest worst case (shifted divergence).
        attacked: position of the example that was attacked.
        before: the attack on its trained model, without unlearning.
        after: the attack after its certified k steps.
        linear_mu: at the attacked example and its k, the linearized distance, which F must not be below.
        mean_pull: at the attacked example and its k, the certified bound F̄.
        accuracy: of one trained model on its training data.
        public: what must be public for the certificate to hold, as sentences.
        settings: all arguments.
    """

    steps: Scores
    epsilon: Floats
    published: float
    shifted: float
    attacked: int
    before: LinearAttackResult | None
    after: LinearAttackResult | None
    linear_mu: float
    mean_pull: float
    accuracy: float
    public: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def consistent(self) -> bool:
        """Whether no measurement contradicts the certificate."""
        measured = self.after.epsilon if self.after else 0.0
        return bool(measured <= self.epsilon[self.attacked] and self.linear_mu <= self.mean_pull)

    def table(self) -> str:
        """Every example's certified k and ε as comma-separated values."""
        rows = zip(self.steps.ids, self.steps.values, self.epsilon, strict=True)
        return "id,k,epsilon\n" + "".join(f"{id_},{k:.0f},{epsilon:.6g}\n" for id_, k, epsilon in rows)

    def document(self) -> dict[str, Any]:
        """The result as a JSON-compatible dictionary."""
        levels = {"min": 0, "p10": 10, "median": 50, "p90": 90, "max": 100}
        certified = self.steps.values[np.isfinite(self.steps.values)]
        quantiles = {name: float(np.percentile(certified, q, method="higher")) for name, q in levels.items()}
        worst = self.attacked
        return {
            "status": self.steps.status.value,
            "reasons": list(self.steps.reasons),
            "public": list(self.public),
            "k_instance": quantiles,
            "not_certified": len(self.steps.values) - len(certified),
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
            "consistent": self.consistent,
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
    learning_rate: float | None = None,
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
        l2: the strength of the regularizer, m.
        learning_rate: step size η, chosen without looking at the data; 1/(1/4 + m) by default, which contracts on any
            data with rows of norm at most 1.
        steps: training steps T.
        runs: training runs R from which the certificate is computed; the released run is not among them.
        failure: the probability β that the statement does not hold.
        simultaneous: β holds for all examples and all k together; otherwise for each.
        attack_models: number of models of each kind for the attack on the hardest example; 0 for no attack.
        seed: random seed of all runs.
        note: called with a sentence before each part.

    Assumptions: full batches, real noise; removal of one example, own-size means. Retraining uses the same η, σ, T and
        classes as training, so these must not be computed from data that contain x: `Certification.public` lists
        them. An example that is the only one of a class that is not public has no certificate.

    Departs from the paper: see `PathBound`; the target is retraining for T + k steps.

    Source: new here (docs/theory/certificate.md).

    Checked by: tests/oracles/test_theory_certificate.py
    """
    _check(epsilon, delta, steps, runs, failure, attack_models)
    n, certifiable = len(problem), np.flatnonzero(~problem.sole_members)
    if not certifiable.size:
        raise InputError(
            "Every example is the only one of its class, so none can be certified; if the classes are public, pass "
            "`classes`."
        )
    dynamics = public_dynamics(n, sigma=sigma, l2=l2, learning_rate=learning_rate, steps=steps)
    descent = Descent(problem, dynamics)
    published, shifted = _worst_cases(descent, epsilon, delta)
    note(f"Computing the pulls of {n} examples over {runs} training runs of {steps} steps.")
    rng = np.random.default_rng((seed, 0))
    pulls = bound_pulls(descent, shifted, runs=runs, failure=failure, simultaneous=simultaneous, rng=rng)
    k, certified = pulls.certified(PathBound(delta), epsilon, shifted)
    k, certified = (np.where(problem.sole_members, np.inf, values) for values in (k, certified))
    hardest = int(certifiable[np.lexsort((pulls.upper[-1][certifiable], k[certifiable]))[-1]])
    if attack_models:
        note(f"Attacking example {problem.ids[hardest]} with {attack_models} models of each kind.")
    before, after = _attacks(descent, hardest, int(k[hardest]), delta, attack_models, seed)
    public = _public(problem, dynamics, default_sigma=sigma is None, default_rate=learning_rate is None)
    reasons = (*_reasons(pulls.chance, simultaneous), *public, *_without_certificate(problem))
    return Certification(
        steps=Scores("certified_steps", problem.ids, k, {}, Status.CERTIFICATE, reasons),
        epsilon=certified,
        published=published,
        shifted=shifted,
        attacked=hardest,
        before=before,
        after=after,
        linear_mu=best_direction(descent, hardest, steps, int(k[hardest])).mu,
        mean_pull=pulls.pull(k[hardest], hardest),
        accuracy=problem.accuracy(pulls.weights),
        public=public,
        settings={
            "data": problem.name,
            "n": n,
            "d": problem.features.shape[1],
            "outputs": problem.outputs,
            "epsilon": epsilon,
            "delta": delta,
            "sigma": dynamics.sigma,
            "l2": l2,
            "learning_rate": dynamics.learning_rate,
            "steps": steps,
            "runs": runs,
            "failure": failure,
            "simultaneous": simultaneous,
            "seed": seed,
        },
    )


def public_dynamics(
    n: int, *, sigma: float | None, l2: float, learning_rate: float | None, steps: int
) -> Langevin:
    """The noisy gradient descent on any n rows of norm at most 1: it depends on nothing else of the data."""
    smooth = PUBLIC_SMOOTHNESS + l2
    eta = 1 / smooth if learning_rate is None else learning_rate
    return Langevin(eta, 5.0 / n if sigma is None else sigma, smooth, l2, steps=steps, initial_variance=0.0)


def _worst_cases(descent: Descent, epsilon: float, delta: float) -> tuple[float, float]:
    """k of the published worst case and of shifted divergence, for any example with these norms."""
    problem, dynamics = descent.problem, descent.dynamics
    longest = float(np.linalg.norm(problem.features, axis=1).max() * np.sqrt(problem.outputs))
    published = published_worst_case(dynamics, lipschitz=longest, n=len(problem), delta=delta)
    shift = dynamics.learning_rate * 2 * longest / len(problem)
    shifted = Shifted(dynamics, delta, shift=shift)
    return steps_to_unlearn(epsilon, published).value, steps_to_unlearn(epsilon, shifted).value


def _attacks(
    descent: Descent, position: int, k: int, delta: float, models: int, seed: int
) -> tuple[LinearAttackResult | None, LinearAttackResult | None]:
    if models == 0:
        return None, None
    rng = np.random.default_rng((seed, 1))
    total = descent.dynamics.steps or 0
    return linear_attack(descent, position, steps=total, k=k, delta=delta, models=models, rng=rng)


def _reasons(chance: float, simultaneous: bool) -> tuple[str, ...]:
    scope = "all examples and all k at once" if simultaneous else "each example and k separately"
    return (
        "Strongly convex loss, full batches, real noise, exact contraction 1 − ηm.",
        f"The mean over runs is bounded by Gaussian concentration; each bound fails with probability {chance:.2g}, "
        f"for {scope}.",
        "(ε, δ) in one direction, towards retraining for T + k steps; the runs are not the released one.",
    )


def _public(
    problem: Problem, dynamics: Langevin, *, default_sigma: bool, default_rate: bool
) -> tuple[str, ...]:
    rate = "1/(1/4 + m)" if default_rate else "given"
    noise = "5/n, so n too" if default_sigma else "given"
    classes = (
        "as given beforehand"
        if problem.public_classes
        else "those of the data, which have two members or more"
    )
    return (
        f"Public, chosen without the example: η = {dynamics.learning_rate:.6g} ({rate}), σ = {dynamics.sigma:g} "
        f"({noise}), m = {dynamics.strong_convexity:g}, T = {dynamics.steps}, rows scaled to norm 1.",
        f"Public: the classes, {classes}.",
        "Public: k, which is part of the target; whoever publishes it publishes how hard the example is.",
    )


def _without_certificate(problem: Problem) -> tuple[str, ...]:
    sole = problem.ids[problem.sole_members]
    if not sole.size:
        return ()
    return (
        f"No certificate for {sole.size} examples that are the only ones of their class (the first is {sole[0]}): "
        "without such an example the class, and so the model, would be another; if the classes are public, pass "
        "`classes`.",
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
