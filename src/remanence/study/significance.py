"""Tests behind verdicts: paired permutation tests over seeds, with known error rates in both directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata, t

Agreement = Literal["agrees", "disagrees", "undecided"]
LEVEL = 0.05
"""A verdict other than undecided needs a p-value below this."""
_EXACT = 14
"""Up to this many pairs all assignments of signs are enumerated; otherwise a fixed sample of them."""
_SAMPLED = 1 << 14
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ClaimTest:
    """A claim tested in both directions.

    Args:
        p: one-sided p-value: how probable numbers at least as clear would be if the claim did not hold.
        p_against: the same if the opposite of the claim did not hold.
        effect: the estimated effect; None if it is not known.
        interval: 95 % interval of the effect over seeds (Student's t); None for fewer than two.
        unit: what the effect is.
        samples: number of seeds, or of other independent repetitions.
        least: the smallest p-value that so many samples can give.
    """

    p: float
    p_against: float
    effect: float | None
    interval: tuple[float, float] | None
    unit: str
    samples: int
    least: float

    @property
    def agreement(self) -> Agreement:
        """The verdict if this were the only claim of its study."""
        return decided(self.p, self.p_against)

    @property
    def why_undecided(self) -> str:
        """Why these numbers can never decide, if they cannot; empty otherwise."""
        if self.least < LEVEL:
            return ""
        return (
            f"{self.samples} seeds or pairs give no p-value below {self.least:.3g}, so nothing can be decided; "
            f"at least {fewest_samples()} are needed."
        )


def decided(p: float, p_against: float) -> Agreement:
    """The verdict that two one-sided p-values give."""
    if p < LEVEL:
        return "agrees"
    return "disagrees" if p_against < LEVEL else "undecided"


def fewest_samples(level: float = LEVEL) -> int:
    """The smallest number of samples with which a sign-flip test can decide."""
    return math.floor(math.log2(1 / level)) + 1


def sign_flip(scores: ArrayLike) -> float:
    """One-sided p-value that the mean of paired scores is above zero.

    Statement:
        p = P(mean(± s_i) ≥ mean(s_i)) over independent signs, each + or − with probability one half.

    Symbols: `scores` = s_i, one for each seed.

    Assumptions: without an effect s_i and −s_i are equally likely, given |s_i|. That holds for any antisymmetric
        comparison of two things that are exchangeable without an effect, such as two times under one censoring limit. A
        tie, or a pair whose order censoring hides, has the score 0 and does not count in either direction. The test is
        then exact: p ≤ α with probability at most α.

    Departs from the paper: it reports means without tests.

    Source: Fisher 1935, section 21; Pitman 1937; for censored pairs see Gehan 1965.

    Checked by: tests/unit/study/test_error_rates.py
    """
    values = np.asarray(scores, dtype=np.float64)
    values = values[values != 0]
    if not values.size:
        return 1.0
    flipped = _signs(values.size) @ values
    observed = values.sum()
    slack = _ROUNDING * np.abs(values).sum()
    return float(np.mean(flipped >= observed - slack))


@lru_cache(maxsize=16)
def _signs(count: int) -> NDArray[np.float64]:
    """All assignments of signs to so many pairs, or a sample of them that contains the observed one."""
    if count <= _EXACT:
        return np.array(list(product((1.0, -1.0), repeat=count)))
    sample = np.random.default_rng(0).choice((1.0, -1.0), size=(_SAMPLED, count))
    sample[0] = 1.0
    return sample


def paired_test(
    scores: Sequence[float], unit: str, *, limits: tuple[float, float] | None = None
) -> ClaimTest:
    """The claim that paired scores are above zero; the opposite is that they are below.

    Args:
        scores: one for each seed; 0 for ties and where the order is not known.
        unit: what the effect is.
        limits: the smallest and largest possible score, which the interval does not pass.
    """
    values = np.asarray(scores, dtype=np.float64)
    interval = mean_interval(values)
    if interval is not None and limits is not None:
        interval = max(interval[0], limits[0]), min(interval[1], limits[1])
    return ClaimTest(
        sign_flip(values),
        sign_flip(-values),
        float(values.mean()) if values.size else None,
        interval,
        unit,
        values.size,
        2.0**-values.size,
    )


def threshold_test(values: Sequence[float], threshold: float, unit: str) -> ClaimTest:
    """The claim that values are above a threshold that was stated beforehand."""
    array = np.asarray(values, dtype=np.float64)
    above = paired_test((array - threshold).tolist(), unit)
    return ClaimTest(
        above.p,
        above.p_against,
        float(array.mean()) if array.size else None,
        mean_interval(array),
        unit,
        array.size,
        above.least,
    )


def equivalence_test(differences: Sequence[float], margin: float, unit: str) -> ClaimTest:
    """The claim that differences are within ± a margin that was stated beforehand; the opposite is beyond it.

    Statement:
        p = max(p(d_i + margin above 0), p(margin − d_i above 0)); against: twice the smaller p of d_i − margin above 0
        and −margin − d_i above 0.

    Symbols: `differences` = d_i, one for each seed.

    Assumptions: as for `sign_flip`, at the margin: d_i is symmetric about its mean.

    Departs from the paper: it compares means by eye.

    Source: Schuirmann 1987 (two one-sided tests), with permutation tests.

    Checked by: tests/unit/study/test_error_rates.py
    """
    values = np.asarray(differences, dtype=np.float64)
    beyond = 2 * min(sign_flip(values - margin), sign_flip(-margin - values))
    return ClaimTest(
        max(sign_flip(values + margin), sign_flip(margin - values)),
        min(1.0, beyond),
        float(values.mean()) if values.size else None,
        mean_interval(values),
        unit,
        values.size,
        2.0**-values.size,
    )


def ratio_equivalence_test(
    values: Sequence[float], references: Sequence[float], margin: float, unit: str
) -> ClaimTest:
    """The claim that values are within ± a share `margin` of their references; the opposite is beyond it.

    As `equivalence_test`, with v_i − (1 − margin) r_i above 0 and (1 + margin) r_i − v_i above 0, so that no estimate
    of the references' scale enters.

    Checked by: tests/unit/study/test_error_rates.py
    """
    v, r = np.asarray(values, dtype=np.float64), np.asarray(references, dtype=np.float64)
    lower, upper = (1 - margin) * r, (1 + margin) * r
    relative = v / np.where(r == 0, 1.0, r) - 1
    return ClaimTest(
        max(sign_flip(v - lower), sign_flip(upper - v)),
        min(1.0, 2 * min(sign_flip(v - upper), sign_flip(lower - v))),
        float(relative.mean()) if v.size else None,
        mean_interval(relative),
        unit,
        v.size,
        2.0**-v.size,
    )


def all_hold(tests: Sequence[ClaimTest]) -> ClaimTest:
    """The claim that several claims hold together; the opposite is that one of them fails.

    All must be shown, so the largest p-value counts (intersection–union test). That one fails may be shown by any of
    them, so the smallest p-value against is multiplied by their number (Bonferroni). The effect is that of the claim
    that is hardest to show; between equal p-values, the smallest.
    """
    weakest = max(tests, key=lambda test: (test.p, -(test.effect or 0.0)))
    against = min(1.0, len(tests) * min(test.p_against for test in tests))
    return ClaimTest(
        weakest.p,
        against,
        weakest.effect,
        weakest.interval,
        weakest.unit,
        min(test.samples for test in tests),
        max(test.least for test in tests),
    )


def rank_test(correlation: float | None, ranks: Sequence[float], values: Sequence[float]) -> ClaimTest:
    """The claim that values grow with ranks, by permuting the values; for things that are measured only once.

    Args:
        correlation: their rank correlation; None where one side is constant.
        ranks: the ranks, or numbers whose order counts.
        values: what is claimed to grow.
    """
    orders = _orders(len(values))
    observed = _concordance(np.asarray(ranks), np.asarray(values)[None])[0]
    all_orders = _concordance(np.asarray(ranks), np.asarray(values)[orders])
    return ClaimTest(
        float(np.mean(all_orders >= observed - _ROUNDING)),
        float(np.mean(all_orders <= observed + _ROUNDING)),
        correlation,
        None,
        "Spearman correlation over forget sets",
        len(values),
        1 / math.factorial(len(values)),
    )


def _concordance(ranks: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's statistic up to constants, for each row of values."""
    return np.asarray(rankdata(values, axis=1) @ rankdata(ranks), dtype=np.float64)


@lru_cache(maxsize=8)
def _orders(count: int) -> NDArray[np.int64]:
    """All orders of so many things, or a sample of them that contains the observed one."""
    if count <= 7:
        return np.array(list(permutations(range(count))))
    rng = np.random.default_rng(0)
    sample = np.stack([rng.permutation(count) for _ in range(_SAMPLED)])
    sample[0] = np.arange(count)
    return sample


def mean_interval(values: ArrayLike, coverage: float = 0.95) -> tuple[float, float] | None:
    """Student's t interval of the mean; None for fewer than two values."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        return None
    half = float(t.ppf((1 + coverage) / 2, array.size - 1) * array.std(ddof=1) / np.sqrt(array.size))
    return float(array.mean()) - half, float(array.mean()) + half


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for testing all of them: each at most a level with probability at most that level, together.

    Source: Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    order = np.argsort(p_values)
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, position in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[position]))
        corrected[position] = largest
    return corrected
