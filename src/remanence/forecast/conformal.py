"""A prediction interval that is valid for small samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError


@dataclass(frozen=True)
class LeaveOneOut:
    """Predictions by predictors that were each fitted without one calibration set.

    Args:
        own: [n] prediction for each set by the predictor fitted without it.
        new: [n] predictions for a new set by the same n predictors.
        steps: [n] the steps it took, or after which the search ended.
        reached: [n] whether the criterion was reached.
    """

    own: NDArray[np.float64]
    new: NDArray[np.float64]
    steps: NDArray[np.float64]
    reached: NDArray[np.bool_]

    def only(self, which: Sequence[bool]) -> LeaveOneOut:
        """The predictions of some of the predictors."""
        rows = np.flatnonzero(which)
        return LeaveOneOut(self.own[rows], self.new[rows], self.steps[rows], self.reached[rows])

    def within(self, budget: float) -> LeaveOneOut:
        """The predictions of the steps until the budget ends."""
        return replace(self, own=np.minimum(self.own, budget), new=np.minimum(self.new, budget))


def fewest(coverage: float) -> int:
    """The smallest number of sets with which the interval is finite."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


def guaranteed_coverage(coverage: float) -> float:
    """The probability that jackknife+ guarantees for an interval of this nominal coverage: 80 % for 90 %."""
    return max(0.0, 1 - 2 * (1 - coverage))


def jackknife_interval(left_out: LeaveOneOut, coverage: float = 0.9) -> tuple[float, float]:
    r"""The interval that contains the steps of the new set with about this probability; the upper end may be infinite.

    Statement: the steps :math:`k_i` are those until the set was forgotten or the budget ended. On the scale
    :math:`s(k) = \ln(1 + k)`, with residuals :math:`r_i = |s(k_i) - s(\hat k_{-i}(P_i))|` and :math:`m = \lceil
    (n+1)(1-\alpha) \rceil`, the upper end is :math:`s^{-1}` of the m-th smallest of :math:`s(\hat k_{-i}(P)) + r_i`,
    the lower that of the m-th largest of :math:`s(\hat k_{-i}(P)) - r_i`, or 0.

    Assumptions: the new set and the calibration sets are exchangeable and have the same budget, and the predictors are
    fitted by one rule that ignores the order of the sets, choices between laws included; nothing about the law being
    right. The probability is then at least :math:`1 - 2\alpha` (`guaranteed_coverage`), and in practice about
    :math:`1 - \alpha` (jackknife+). A set that used up the budget counts with the budget, which is what it took. The
    scale is logarithmic because errors grow with the steps. When n is too small for m, the interval is infinite.

    Source: Barber, Candès, Ramdas, Tibshirani, "Predictive inference with the jackknife+", 2021.

    Checked by: tests/unit/forecast/test_forecast.py
    """
    if not 0 < coverage < 1:
        raise InputError(f"`coverage` must be between 0 and 1; got {coverage}.")
    n = left_out.steps.size
    rank = math.ceil((n + 1) * coverage)
    if rank > n:
        return 0.0, math.inf
    own, new, steps = (np.log1p(values) for values in (left_out.own, left_out.new, left_out.steps))
    residuals = np.abs(steps - own)
    low, high = np.sort(new - residuals)[n - rank], np.sort(new + residuals)[rank - 1]
    return max(0.0, float(np.expm1(low))), float(np.expm1(high))
