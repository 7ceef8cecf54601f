"""What a metric shows when there is nothing to find, by drawing labels anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Null:
    """The values of a metric over random labels.

    Args:
        mean: their mean.
        sd: their standard deviation.
        tolerance: how far above the mean 95 % of them stay.
        conclusive: a value within the tolerance shows that there is little to find; otherwise there are too few models
            to show that.
    """

    mean: float
    sd: float
    tolerance: float
    conclusive: bool = True


def null_of(draws: Sequence[float], *, at: float | None = None, conclusive: bool = True) -> Null:
    """The null of these values.

    Args:
        draws: values of the metric over random labels.
        at: the value when there is nothing to find, where theory gives one; their mean by default.
        conclusive: as for `Null`.
    """
    center = float(np.mean(draws)) if at is None else at
    tolerance = max(0.0, float(np.quantile(draws, CONFIDENCE)) - center)
    return Null(center, float(np.std(draws, ddof=1)), tolerance, conclusive)
