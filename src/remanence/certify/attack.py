"""Try to tell unlearned models from retrained ones, by the best linear test there is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from remanence.certify.descent import Descent

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Attack:
    """What a likelihood-ratio test achieved on models it had not seen.

    Args:
        epsilon: one-sided lower confidence limit of the ε at δ that the test proves; 0 where it proves none.
        linear_mu: distance of the two laws in noise units, by linearisation: what the test had to work with.
        unlearned_hits: unlearned models that the test called unlearned.
        retrained_hits: retrained models that it called unlearned.
        models: models of each kind.
    """

    epsilon: float
    linear_mu: float
    unlearned_hits: int
    retrained_hits: int
    models: int


@dataclass(frozen=True)
class Direction:
    """The linearised difference of the two laws for one output: unit-variance statistic ⟨w − centre, slope⟩."""

    output: int
    centre: Floats
    slope: Floats
    mu: float


def best_direction(descent: Descent, position: int, steps: int, k: int) -> Direction:
    """Where unlearned and retrained weights differ the most, over the outputs.

    Without noise, both descents are followed exactly; their difference δ is the shift of the mean. The
    covariance Σ is that of the chain linearised at the end. The statistic is δ′Σ⁻¹(w − centre)/μ with μ² = δ′Σ⁻¹δ.
    """
    rest = descent.without(position)
    signs, zero = (
        descent.problem.signs,
        np.zeros((descent.problem.features.shape[1], descent.problem.outputs)),
    )
    trained = descent.walk(steps, signs, zero, None)
    unlearned = rest.walk(k, rest.problem.signs, trained, None)
    retrained = rest.walk(steps + k, rest.problem.signs, zero, None)
    found = [
        _direction(rest, c, retrained[:, c], (unlearned - retrained)[:, c], steps + k)
        for c in range(descent.problem.outputs)
    ]
    return max(found, key=lambda each: each.mu)


def attack(
    descent: Descent,
    position: int,
    *,
    steps: int,
    k: int,
    delta: float,
    models: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> tuple[Attack, Attack]:
    """Train, unlearn and retrain `models` times each; test before the first and after the last unlearning step.

    The thresholds are fixed before any model is trained, so that a Clopper–Pearson limit holds for them. The
    weights of one output are attacked; that is part of what is released, so its ε is a lower limit for all.
    """
    rest = descent.without(position)
    found = []
    aims = [best_direction(descent, position, steps, each) for each in (0, k)]
    for aim in aims if aims[0].output != aims[1].output else aims[:1]:
        columns = [np.repeat(each.problem.signs[:, [aim.output]], models, axis=1) for each in (descent, rest)]
        zero = np.zeros((descent.problem.features.shape[1], models))
        trained, retrained = (
            descent.walk(steps, columns[0], zero, rng),
            rest.walk(steps, columns[1], zero, rng),
        )
        later = rest.walk(k, columns[1], trained, rng), rest.walk(k, columns[1], retrained, rng)
        found.append(((trained, retrained), later))
    return (
        _test(aims[0], *found[0][0], delta, confidence),
        _test(aims[1], *found[-1][1], delta, confidence),
    )


def _test(aim: Direction, suspects: Floats, retrained: Floats, delta: float, confidence: float) -> Attack:
    models = suspects.shape[1]
    threshold = _threshold(aim.mu, delta, models, confidence)
    hits, false_hits = (
        int(((weights - aim.centre[:, None]).T @ aim.slope > threshold).sum())
        for weights in (suspects, retrained)
    )
    limit = epsilon_limit(hits, false_hits, models, delta, confidence)
    return Attack(limit, aim.mu, hits, false_hits, models)


def epsilon_limit(hits: int, false_hits: int, models: int, delta: float, confidence: float) -> float:
    """The largest ε that the counts disprove at this confidence, from one-sided Clopper–Pearson limits.

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
    low = beta.ppf(risk, hits, models - hits + 1) if hits else 0.0
    high = beta.ppf(1 - risk, false_hits + 1, models - false_hits) if false_hits < models else 1.0
    return float(max(np.log((low - delta) / high), 0.0)) if low > delta else 0.0


def _direction(rest: Descent, output: int, at: Floats, shift: Floats, steps: int) -> Direction:
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
    return Direction(output, at, slope, mu)


def _threshold(mu: float, delta: float, models: int, confidence: float) -> float:
    """The threshold with the best limit if the counts came out as the linearisation expects."""
    grid = np.linspace(-3, 4, 141)
    expected = [
        epsilon_limit(
            round(models * norm.sf(each - mu)), round(models * norm.sf(each)), models, delta, confidence
        )
        for each in grid
    ]
    return float(grid[int(np.argmax(expected))]) if max(expected) > 0 else mu / 2
