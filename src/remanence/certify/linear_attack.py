"""An attack that distinguishes unlearned from retrained models, by the best linear test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from remanence.certify.descent import Descent

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinearAttackResult:
    """The result of a likelihood-ratio test on models that it was not chosen with.

    Args:
        epsilon: one-sided lower confidence limit of the ε at δ that the test shows; 0 if it shows none.
        linear_mu: distance of the two laws in noise units, by linearization: the power of the test.
        unlearned_hits: number of unlearned models that the test classifies as unlearned.
        retrained_hits: number of retrained models that it classifies as unlearned.
        models: number of models of each kind.
    """

    epsilon: float
    linear_mu: float
    unlearned_hits: int
    retrained_hits: int
    models: int


@dataclass(frozen=True)
class AttackDirection:
    """The linearized difference of the two laws for one output: unit-variance statistic ⟨w − center, slope⟩."""

    output: int
    center: Floats
    slope: Floats
    mu: float


def best_direction(descent: Descent, position: int, steps: int, k: int) -> AttackDirection:
    """The direction in which unlearned and retrained weights differ the most, over the outputs.

    Both descents are computed exactly without noise; their difference δ is the shift of the mean. The
    covariance Σ is that of the chain linearized at the end. The statistic is δ′Σ⁻¹(w − center)/μ with μ² = δ′Σ⁻¹δ.
    """
    rest = descent.without(position)
    signs, zero = (
        descent.problem.signs,
        np.zeros((descent.problem.features.shape[1], descent.problem.outputs)),
    )
    trained = descent.run(steps, signs, zero, None)
    unlearned = rest.run(k, rest.problem.signs, trained, None)
    retrained = rest.run(steps + k, rest.problem.signs, zero, None)
    directions = [
        _direction(rest, c, retrained[:, c], (unlearned - retrained)[:, c], steps + k)
        for c in range(descent.problem.outputs)
    ]
    return max(directions, key=lambda direction: direction.mu)


def linear_attack(
    descent: Descent,
    position: int,
    *,
    steps: int,
    k: int,
    delta: float,
    models: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> tuple[LinearAttackResult, LinearAttackResult]:
    """Train, unlearn and retrain `models` times each; test before the first and after the last unlearning step.

    The thresholds are fixed before any model is trained, so that a Clopper–Pearson limit holds for them. The
    weights of one output are attacked; they are part of what is released, so their ε is a lower limit for the whole.
    """
    rest = descent.without(position)
    weights = []
    directions = [best_direction(descent, position, steps, unlearning) for unlearning in (0, k)]
    for direction in directions if directions[0].output != directions[1].output else directions[:1]:
        signs, rest_signs = (
            np.repeat(side.problem.signs[:, [direction.output]], models, axis=1) for side in (descent, rest)
        )
        zero = np.zeros((descent.problem.features.shape[1], models))
        trained, retrained = descent.run(steps, signs, zero, rng), rest.run(steps, rest_signs, zero, rng)
        unlearned, longer = rest.run(k, rest_signs, trained, rng), rest.run(k, rest_signs, retrained, rng)
        weights.append(((trained, retrained), (unlearned, longer)))
    return (
        _test(directions[0], *weights[0][0], delta, confidence),
        _test(directions[1], *weights[-1][1], delta, confidence),
    )


def _test(
    direction: AttackDirection, suspects: Floats, retrained: Floats, delta: float, confidence: float
) -> LinearAttackResult:
    models = suspects.shape[1]
    threshold = _threshold(direction.mu, delta, models, confidence)
    hits, false_hits = (
        int(((weights - direction.center[:, None]).T @ direction.slope > threshold).sum())
        for weights in (suspects, retrained)
    )
    limit = epsilon_limit(hits, false_hits, models, delta, confidence)
    return LinearAttackResult(limit, direction.mu, hits, false_hits, models)


def epsilon_limit(hits: int, false_hits: int, models: int, delta: float, confidence: float) -> float:
    """The largest ε that the counts reject at this confidence, from one-sided Clopper–Pearson limits.

    Statement:
        ε ≥ ln((p − δ)/q) with p the lower limit of P(hit | unlearned), q the upper limit of P(hit | retrained),
        each at confidence 1 − (1 − `confidence`)/2.

    Symbols: `hits`, `false_hits` of `models` models each.

    Assumptions: independent models; an event chosen before they were drawn.

    Departs from the paper: it reports attack success without limits.

    Source: Clopper and Pearson 1934; Jagielski, Ullman and Oprea 2020 for the use.

    Checked by: tests/oracles/test_theory_certificate.py
    """
    risk = (1 - confidence) / 2
    lower = beta.ppf(risk, hits, models - hits + 1) if hits else 0.0
    upper = beta.ppf(1 - risk, false_hits + 1, models - false_hits) if false_hits < models else 1.0
    return float(max(np.log((lower - delta) / upper), 0.0)) if lower > delta else 0.0


def _direction(rest: Descent, output: int, at: Floats, shift: Floats, steps: int) -> AttackDirection:
    x, n = rest.problem.features, len(rest.problem)
    margins = x @ at
    curvature = 1 / (4 * np.square(np.cosh(margins / 2)))
    hessian = (x * curvature[:, None]).T @ x / n
    values, vectors = np.linalg.eigh(hessian)
    shrink = 1 - rest.dynamics.learning_rate * (values + rest.dynamics.strong_convexity)
    variance = rest.dynamics.variance * (1 - shrink ** (2 * steps)) / (1 - shrink**2)
    coordinates = vectors.T @ shift
    mu = float(np.sqrt(np.sum(coordinates**2 / variance)))
    slope = vectors @ (coordinates / variance) / mu if mu > 0 else np.zeros_like(shift)
    return AttackDirection(output, at, slope, mu)


def _threshold(mu: float, delta: float, models: int, confidence: float) -> float:
    """The threshold with the best limit if the counts are as the linearization predicts."""
    grid = np.linspace(-3, 4, 141)
    expected = [
        epsilon_limit(
            round(models * norm.sf(level - mu)), round(models * norm.sf(level)), models, delta, confidence
        )
        for level in grid
    ]
    return float(grid[int(np.argmax(expected))]) if max(expected) > 0 else mu / 2
