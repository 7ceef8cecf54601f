"""Rank correlations, one per seed, and verdicts from them; an undefined one decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from remanence.study.paired_times import spread
from remanence.study.results import Agreement

Correlations = Sequence[float | None]


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation; none where one side is constant."""
    if len(set(a)) < 2 or len(set(b)) < 2:
        return None
    # of five sets 0.9 is a value there is, and a rule that says "at least 0.9" must not lose it to rounding
    return round(float(np.corrcoef(rankdata(a), rankdata(b))[0, 1]), 12)


def correlates(correlation: float | None, strong: float) -> Agreement:
    """Whether a claim that something grows with something else holds."""
    if correlation is None:
        return "undecided"
    return "agrees" if correlation >= strong else "disagrees" if correlation <= 0 else "undecided"


def mean_of(correlations: Correlations) -> float | None:
    """Over seeds; none where that of some seed is undefined."""
    known = [value for value in correlations if value is not None]
    return float(np.mean(known)) if known and len(known) == len(correlations) else None


def shown(*correlations: float | None) -> str:
    """The mean and its spread over seeds."""
    known = [value for value in correlations if value is not None]
    return spread(known) if known and len(known) == len(correlations) else "undefined"
