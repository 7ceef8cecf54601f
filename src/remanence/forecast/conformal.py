"""A prediction interval that is honest on small samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError


@dataclass(frozen=True)
class LeftOut:
    """What predictors that did not see a calibration set say: of that set, and of the new one.

    Args:
        own: [n] each set's prediction by the predictor fitted without it.
        new: [n] the new set's prediction by the same n predictors.
        steps: [n] what happened, or for how long it was tried.
        reached: [n] which of the two.
    """

    own: NDArray[np.float64]
    new: NDArray[np.float64]
    steps: NDArray[np.float64]
    reached: NDArray[np.bool_]

    def only(self, which: Sequence[bool]) -> LeftOut:
        """Of some of the calibration sets."""
        rows = np.flatnonzero(which)
        return LeftOut(self.own[rows], self.new[rows], self.steps[rows], self.reached[rows])


def fewest(coverage: float) -> int:
    """How many sets an interval takes that ends somewhere."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


def jackknife_interval(left_out: LeftOut, coverage: float = 0.9) -> tuple[float, float]:
    r"""Where the new set's steps fall with about this probability; the upper end may be infinite.

    Statement: with residuals :math:`r_i = |k_i - \hat k_{-i}(P_i)|` and :math:`m = \lceil (n+1)(1-\alpha) \rceil`, the
    upper end is the m-th smallest of :math:`\hat k_{-i}(P) + r_i`, the lower the m-th largest of
    :math:`\hat k_{-i}(P) - r_i`, or 0.

    Assumptions: the new set and the calibration sets are exchangeable; nothing about the law being right. The
    probability is then at least :math:`1 - 2\alpha`, and in practice about :math:`1 - \alpha` (jackknife+).
    A set that was never unlearned has a residual known only from below: it counts as infinite. Where n is too small
    for m, nothing is said.

    Source: Barber, Candès, Ramdas, Tibshirani, "Predictive inference with the jackknife+", 2021.

    Checked by: tests/unit/test_forecast.py
    """
    if not 0 < coverage < 1:
        raise InputError(f"`coverage` must be between 0 and 1; got {coverage}.")
    n = left_out.steps.size
    rank = math.ceil((n + 1) * coverage)
    if rank > n:
        return 0.0, math.inf
    residuals = np.where(left_out.reached, np.abs(left_out.steps - left_out.own), np.inf)
    low = np.sort(left_out.new - residuals)[n - rank]
    return max(0.0, float(low)), float(np.sort(left_out.new + residuals)[rank - 1])
