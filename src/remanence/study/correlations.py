"""Rank correlations, one per seed; an undefined one decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.stats import rankdata

from remanence.study.paired_times import spread

Correlations = Sequence[float | None]


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation; none where one side is constant."""
    if len(set(a)) < 2 or len(set(b)) < 2:
        return None
    # of five sets 0.9 is a value there is, and a rule that says "at least 0.9" must not lose it to rounding
    return round(float(np.corrcoef(rankdata(a), rankdata(b))[0, 1]), 12)


def kendall(a: Sequence[float], b: Sequence[float]) -> float:
    """Concordant minus discordant pairs, as a share of all pairs; ties count as neither."""
    pairs = list(combinations(range(len(a)), 2))
    signs = [np.sign(a[j] - a[i]) * np.sign(b[j] - b[i]) for i, j in pairs]
    return float(np.mean(signs)) if pairs else 0.0


def mean_of(correlations: Correlations) -> float | None:
    """Over seeds; none where that of some seed is undefined."""
    values = known(correlations)
    return None if values is None else float(np.mean(values))


def shown(*correlations: float | None) -> str:
    """The mean and its spread over seeds."""
    values = known(correlations)
    return "undefined" if values is None else spread(values)


def known(correlations: Correlations) -> list[float] | None:
    """The correlation of every seed; None where that of some seed is undefined."""
    values = [value for value in correlations if value is not None]
    return values if values and len(values) == len(correlations) else None
