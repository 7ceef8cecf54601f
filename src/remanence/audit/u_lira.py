"""U-LiRA: a likelihood-ratio attack whose shadow models are unlearned by the method under test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from remanence.audit.context import ShadowTable
from remanence.audit.evaluation import Evaluation
from remanence.audit.null import Null, null_of
from remanence.errors import InputError

OWN_VARIANCE = 16
"""With at least this many shadow models of a kind, every example has its own variance; otherwise all share one."""
FEWEST = 3
"""The smallest number of shadow models of a kind for which the accuracy of the attack is estimated."""
VISIBLE = 0.1
"""A verdict that nothing leaks needs a 95 % limit of the accuracy of at most 0.5 plus this."""
_ONE_SIDED = 1.645
_LEAST_VARIANCE = 1e-6
_DRAWS = 200
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def likelihood_ratios(table: ShadowTable, signal: Floats) -> Floats:
    """For each example, log p(signal | trained on, then unlearned) − log p(signal | never trained on).

    Both densities are normal, with the example's mean over the shadows of that kind. Above zero, the model looks like
    those that were trained on the example.

    Args:
        table: the shadows.
        signal: [m] log-odds of the true class by the audited model, for the table's examples in their order.
    """
    inside, outside = (_log_normal(signal, *moments) for moments in _moments_of(table))
    return inside - outside


@lru_cache(maxsize=8)  # the same at every evaluation
def _moments_of(table: ShadowTable) -> tuple[tuple[Floats, Floats], ...]:
    """Means and variances of the shadows that were trained on the example, and of the others."""
    return tuple(_moments(table.signal, kind) for kind in (table.member, ~table.member))


def _moments(shadows: Floats, kind: Flags, *, predictive: bool = False) -> tuple[Floats, Floats]:
    """Mean and variance of the shadows of one kind; `predictive` adds the error of the mean."""
    count = kind.sum(axis=0)
    mean = (shadows * kind).sum(axis=0) / count
    squares = (np.square(shadows - mean) * kind).sum(axis=0)
    shared = squares.sum() / (count - 1).sum()
    variance = np.maximum(np.where(count >= OWN_VARIANCE, squares / (count - 1), shared), _LEAST_VARIANCE)
    if predictive:
        variance = variance * (1 + 1 / count)
    return mean, variance


def _log_normal(signal: Floats, mean: Floats, variance: Floats) -> Floats:
    density: Floats = -0.5 * (np.square(signal - mean) / variance + np.log(2 * np.pi * variance))
    return density


@dataclass(frozen=True)
class AttackAccuracy:
    """Balanced accuracy of the attack; one half when unlearned examples cannot be told from never seen ones.

    Args:
        value: the accuracy. Below one half by chance only.
        sd: its standard deviation over shadow models.
        upper: its one-sided 95 % limit.
    """

    value: float
    sd: float
    upper: float


@lru_cache(maxsize=8)  # a property of the method: the same at every evaluation
def attack_accuracy(table: ShadowTable) -> AttackAccuracy:
    r"""Balanced accuracy of the attack against the method, estimated on its own shadow models.

    With :math:`\ge 16` shadows of a kind, each is attacked with the others. One shadow of the other kind is left out
    too, and densities are widened by the error of their means: otherwise the shadow's own kind has one model fewer,
    and the attack is biased towards calling it the other kind.

    With fewer, an attack with what is left says little: at 3 of a kind it finds 0.53 of a leak of 0.60. There the
    distance of the two kinds is estimated instead, less what the noise of their means adds, and the result is the
    accuracy at that distance.

    Formula: :math:`\Phi(D/2)` with :math:`D^2` the mean over examples of
    :math:`(\bar s_1 - \bar s_0)^2 / v - 1/n_1 - 1/n_0`, where v is the variance within kinds; a negative
    :math:`D^2`, by chance, gives an accuracy as far below one half.

    Departs: the source attacks every shadow with all others, its own kind one short, and uses hundreds of them. The
    formula assumes equal variances of both kinds, and overstates the mean accuracy where only some examples leak.

    Source: Hayes et al., "Inexact Unlearning Needs More Careful Evaluations", 2024; Carlini et al. 2022.
    """
    _check(table.member)
    if _fewest(table.member) >= OWN_VARIANCE:
        correct = _by_leaving_out(table.signal, table.member)
        value, sd = float(correct.mean()), float(correct.std(ddof=1) / np.sqrt(len(correct)))
        return AttackAccuracy(value, sd, value + _ONE_SIDED * sd)
    rows = np.arange(len(table.member))
    without = [_distance_sq(table.signal[rows != row], table.member[rows != row]) for row in rows]
    spread = float(np.sqrt((len(rows) - 1) * np.var(without)))  # jackknife
    distance_sq = _distance_sq(table.signal, table.member)
    low, high = (_accuracy_at(distance_sq + side * spread) for side in (-1, 1))
    return AttackAccuracy(
        _accuracy_at(distance_sq), (high - low) / 2, _accuracy_at(distance_sq + _ONE_SIDED * spread)
    )


@lru_cache(maxsize=8)
def accuracy_null(table: ShadowTable) -> Null:
    """The accuracy when who was trained on is drawn anew for every example, so that nothing leaks.

    It is drawn as it was: of two shadows that share the forget set between them, one or the other had the example.
    """
    _check(table.member)
    many = _fewest(table.member) >= OWN_VARIANCE
    rng, partners = np.random.default_rng(0), _partners(table.member)
    draws = []
    for _ in range(_DRAWS // 4 if many else _DRAWS):
        member = _drawn_anew(table.member, partners, rng)
        draws.append(
            float(_by_leaving_out(table.signal, member).mean())
            if many
            else _accuracy_at(_distance_sq(table.signal, member))
        )
    excludes = attack_accuracy(table).upper <= 0.5 + VISIBLE
    return null_of(draws, at=0.5, conclusive=excludes)


def _partners(member: Flags) -> list[tuple[int, int]] | None:
    """Pairs of shadows that share the examples between them; None if not every shadow is in one."""
    left, pairs = list(range(len(member))), []
    while left:
        row = left.pop(0)
        partner = next((other for other in left if np.array_equal(member[other], ~member[row])), None)
        if partner is None:
            return None
        left.remove(partner)
        pairs.append((row, partner))
    return pairs


def _drawn_anew(member: Flags, partners: list[tuple[int, int]] | None, rng: np.random.Generator) -> Flags:
    if partners is None:
        return np.asarray(rng.permuted(member, axis=0))
    drawn = member.copy()
    for one, other in partners:
        drawn[one] = rng.random(member.shape[1]) < 0.5
        drawn[other] = ~drawn[one]
    return drawn


def _by_leaving_out(signal: Floats, member: Flags) -> Floats:
    """[N] the balanced accuracy on each shadow, attacked with the others, equally many of both kinds."""
    correct = np.empty(len(member))
    for row in range(len(member)):
        kinds = [kind & (np.arange(len(member)) != row)[:, None] for kind in (member, ~member)]
        fewer = np.minimum(*(kind.sum(axis=0) for kind in kinds))
        inside, outside = (kind & (kind.cumsum(axis=0) <= fewer) for kind in kinds)
        densities = [
            _log_normal(signal[row], *_moments(signal, kind, predictive=True)) for kind in (inside, outside)
        ]
        right = (densities[0] > densities[1]) == member[row]
        sides = [right[member[row] == truth] for truth in (True, False)]
        correct[row] = np.mean([side.mean() for side in sides if side.size])
    return correct


def _distance_sq(signal: Floats, member: Flags) -> float:
    """Mean squared distance of the two kinds in standard deviations, without what the noise of their means adds."""
    counts, means, squares = [], [], np.zeros(signal.shape[1])
    for kind in (member, ~member):
        counts.append(kind.sum(axis=0))
        means.append((signal * kind).sum(axis=0) / counts[-1])
        squares += (np.square(signal - means[-1]) * kind).sum(axis=0)
    within = max(float(squares.sum() / (sum(counts) - 2).sum()), _LEAST_VARIANCE)
    noise = 1 / counts[0] + 1 / counts[1]
    return float((np.square(means[0] - means[1]) / within - noise).mean())


def _accuracy_at(distance_sq: float) -> float:
    """Of the best attack on two normal distributions that far apart."""
    return float(norm.cdf(np.sign(distance_sq) * np.sqrt(abs(distance_sq)) / 2))


def _fewest(member: Flags) -> int:
    inside = member.sum(axis=0)
    return int(min(inside.min(), (len(member) - inside).min()))


def _check(member: Flags) -> None:
    if _fewest(member) < FEWEST:
        raise InputError(
            f"The accuracy of U-LiRA needs at least {FEWEST} shadow models trained with each example and "
            f"{FEWEST} without, so {2 * FEWEST} or more; got {len(member)}. With fewer, the number would be the "
            f"noise of their means."
        )


def u_lira(evaluation: Evaluation) -> float:
    """The share of the forget set that the attack classifies as trained on."""
    table = _table(evaluation)
    ids = np.asarray([]) if evaluation.split is None else evaluation.split.forget.ids
    row_of = {example: row for row, example in enumerate(ids.tolist())}
    if not set(table.ids.tolist()) <= row_of.keys():
        raise InputError("The shadow models were made for other examples than this forget set.")
    rows = [row_of[example] for example in table.ids.tolist()]
    return float((likelihood_ratios(table, evaluation.forget.margin.numpy()[rows]) > 0).mean())


def u_lira_accuracy(evaluation: Evaluation) -> float:
    """Balanced accuracy of the attack against the method, on shadow models, whose members are known."""
    return attack_accuracy(_table(evaluation)).value


def u_lira_accuracy_sd(evaluation: Evaluation) -> float:
    """Standard deviation of that accuracy over shadow models."""
    return attack_accuracy(_table(evaluation)).sd


def u_lira_null(evaluation: Evaluation) -> Null:
    """That accuracy if nothing leaks."""
    return accuracy_null(_table(evaluation))


def _table(evaluation: Evaluation) -> ShadowTable:
    if evaluation.context.shadows is None:
        raise InputError("U-LiRA needs shadow models that were unlearned by the same method; pass `shadows`.")
    return evaluation.context.shadows
