"""BaVarIA: a likelihood-ratio attack for few shadow models, with variances that borrow from all examples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, polygamma

from remanence.audit.context import ShadowTable
from remanence.audit.evaluation import Evaluation
from remanence.errors import InputError

_LEAST_VARIANCE = 1e-6
_STRENGTHS = (1.0, 1000.0)
Floats = NDArray[np.float64]
Prior = tuple[float, float]
"""Variance, and the degrees of freedom that it counts for."""


@dataclass(frozen=True)
class Predictive:
    """Student-t distributions of the next shadow's signal, one per example."""

    location: Floats
    scale: Floats
    freedom: Floats

    def log_density(self, target: Floats) -> Floats:
        distance = np.log1p(np.square((target - self.location) / self.scale) / self.freedom)
        half = (self.freedom + 1) / 2
        norm = gammaln(half) - gammaln(self.freedom / 2) - 0.5 * np.log(np.pi * self.freedom)
        return np.asarray(norm - np.log(self.scale) - half * distance)


def predictives(member: NDArray[np.bool_], signal: Floats) -> tuple[Predictive, Predictive]:
    r"""The distributions of the signal for examples that were trained on and unlearned, and for unseen ones.

    Formula: the Student-t predictive of a normal distribution with unknown mean and variance. With :math:`n` shadows
    of a kind, mean :math:`\bar s` and sum of squares :math:`S`, and a scaled inverse :math:`\chi^2` prior
    :math:`(\nu_0, \sigma_0^2)` on the variance, it has :math:`\nu = \nu_0 + n - 1` degrees of freedom, location
    :math:`\bar s` and squared scale :math:`(1 + 1/n)\,(\nu_0 \sigma_0^2 + S)/\nu`.

    Args:
        member: [N, m] whether the shadow model was trained on the example before unlearning it.
        signal: [N, m] log-odds of the true class by the shadow models; at least one shadow of each kind per example.

    Source: Brännvall, "Exponential-Family Membership Inference: From LiRA and RMIA to BaVarIA", arXiv 2603.11799
    (BaVarIA-t: conjugate normal-inverse-gamma priors with a Student-t predictive).

    Departs: the prior on the mean is flat, and the prior on the variance is estimated from all examples by the moments
    of the log-variances (Smyth 2004, "Linear models and empirical Bayes methods"), both kinds together; the paper's
    own constants are not used. With one shadow of each kind there is no variance within a kind; half the variance of
    the differences between kinds takes its place, which includes the variation of the effect.
    """
    if min(kind.sum(axis=0).min() for kind in (member, ~member)) < 1:
        raise InputError("BaVarIA needs at least one shadow model of each kind for every example; got fewer.")
    variance, strength = _prior(member, signal)
    made = []
    for kind in (member, ~member):
        mean, squares, count = _moments(signal, kind)
        freedom = strength + count - 1
        scale = np.sqrt((1 + 1 / count) * (strength * variance + squares) / freedom)
        made.append(Predictive(mean, scale, freedom))
    return made[0], made[1]


def bavaria(evaluation: Evaluation) -> float:
    """The share of the forget set that the attack classifies as trained on."""
    table, split = evaluation.context.shadows, evaluation.split
    if table is None or split is None:
        raise InputError(
            "BaVarIA needs shadow models that were unlearned by the same method; pass `shadows`."
        )
    inside, outside = _of_table(table)
    signal = evaluation.forget.margin.numpy()[split.forget.positions(table.ids)]
    return float((inside.log_density(signal) > outside.log_density(signal)).mean())


@lru_cache(maxsize=8)  # the same at every evaluation
def _of_table(table: ShadowTable) -> tuple[Predictive, Predictive]:
    return predictives(table.member, table.signal)


def _moments(signal: Floats, kind: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Mean, sum of squared deviations and number of the shadows of a kind, for each example."""
    count = kind.sum(axis=0).astype(np.float64)
    mean = (signal * kind).sum(axis=0) / count
    return mean, (np.square(signal - mean) * kind).sum(axis=0), count


def _prior(member: NDArray[np.bool_], signal: Floats) -> Prior:
    """Variance and its strength in degrees of freedom, from all examples and both kinds."""
    kinds = [_moments(signal, kind) for kind in (member, ~member)]
    squares, freedom = (
        np.concatenate(parts) for parts in ([kind[1] for kind in kinds], [kind[2] - 1 for kind in kinds])
    )
    usable = freedom > 0
    if not usable.any():
        differences = kinds[0][0] - kinds[1][0]
        spread = np.var(differences, ddof=1) / 2 if len(differences) > 1 else 1.0
        return max(float(spread), _LEAST_VARIANCE), _STRENGTHS[0]
    freedom, squares = freedom[usable], squares[usable]
    pooled = max(float(squares.sum() / freedom.sum()), _LEAST_VARIANCE)
    return pooled, _strength(np.maximum(squares / freedom, _LEAST_VARIANCE), freedom)


def _strength(variances: Floats, freedom: Floats) -> float:
    """Degrees of freedom of the prior: few if the variances differ between examples by more than chance."""
    logs = np.log(variances) - digamma(freedom / 2) + np.log(freedom / 2)
    excess = float(np.var(logs, ddof=1) - polygamma(1, freedom / 2).mean()) if len(logs) > 1 else 0.0
    low, high = _STRENGTHS
    if excess <= polygamma(1, high / 2):
        return high
    if excess >= polygamma(1, low / 2):
        return low
    return float(brentq(lambda strength: polygamma(1, strength / 2) - excess, low, high))
