"""Record when something has changed: checkpoints placed by the model's own pace.

A fixed handful of examples is watched with forward passes alone. When the order of their errors has moved away
from what it was at the last recorded moment, the whole set is recorded; otherwise nothing is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from remanence.errors import InputError
from remanence.types import NormTrace

PROBES = 256
TOLERANCE = 0.8
LONGEST_GAP = 3.0
"""Record at the latest when training is this many times as far as at the last recorded moment."""


def has_moved(now: NDArray[np.floating[Any]], then: NDArray[np.floating[Any]], tolerance: float) -> bool:
    """Whether the ranks of the probes' errors agree less than `tolerance` (Spearman) with those of then."""
    one, other = rankdata(now), rankdata(then)
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return True
    return float(np.corrcoef(one, other)[0, 1]) < tolerance


def is_due(
    step: int,
    last: int,
    now: NDArray[np.floating[Any]],
    then: NDArray[np.floating[Any]],
    tolerance: float,
) -> bool:
    """Whether this moment deserves a full row, given the last one recorded."""
    return step >= LONGEST_GAP * max(last, 1) or has_moved(now, then, tolerance)


def affords(recorded: int, most: int, share: float) -> bool:
    """Whether another row may be spent once this share of training is done.

    Half of the rows go where the model changes, however early that is; the other half come free with time, so that
    a small budget is not gone before training has begun in earnest.
    """
    return recorded < most * (1 + share) / 2


def probe_positions(n: int, seed: int = 0) -> NDArray[np.int64]:
    """Which examples are watched."""
    return np.sort(np.random.default_rng(seed).choice(n, min(PROBES, n), replace=False))


def adaptive_rows(trace: NormTrace, tolerance: float = TOLERANCE, seed: int = 0) -> NDArray[np.int64]:
    """Which rows of a densely recorded trace the adaptive rule would have recorded; the first and last always."""
    if trace.error is None:
        raise InputError("The adaptive rule needs the trace's `error`, which was not recorded.")
    errors = trace.error[:, probe_positions(len(trace.ids), seed)]
    rows = [0]
    for row in range(1, len(trace.steps)):
        last = rows[-1]
        if is_due(int(trace.steps[row]), int(trace.steps[last]), errors[row], errors[last], tolerance):
            rows.append(row)
    if rows[-1] != len(trace.steps) - 1:
        rows.append(len(trace.steps) - 1)
    return np.array(rows)
