"""When has it been forgotten? The first evaluation from which a metric stays at the oracle's value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from remanence.errors import InputError
from remanence.trials.survival import Duration, kaplan_meier

TOLERANCE = 0.05
STAY = 2


@dataclass(frozen=True)
class DurationSummary:
    """Times to unlearn over seeds. A seed that never got there is never dropped.

    Args:
        mean: over seeds; one that never got there counts with the time it was given, so this is then a lower bound.
        sd: sample standard deviation of the same numbers.
        reached: how many got there.
        seeds: of how many.
        median: by Kaplan and Meier; None when it lies beyond the time given.
    """

    mean: float
    sd: float
    reached: int
    seeds: int
    median: float | None = None


def time_to_unlearn(
    times: Sequence[float],
    values: Sequence[float],
    oracle: float,
    *,
    tolerance: float = TOLERANCE,
    stay: int = STAY,
) -> Duration:
    """The first time from which `values` stays within `tolerance` of the oracle for `stay` evaluations.

    Two-sided: a model that errs more than the oracle on the forget set has not forgotten well either.

    Args:
        times: when the metric was measured, increasing; the first is usually 0, before any unlearning.
        values: what was measured.
        oracle: the mean of the metric over models never trained on the forget set.
        tolerance: how far off counts as close; 0.05 is five points.
        stay: for how many consecutive evaluations it must hold.
    """
    if len(times) != len(values) or len(values) < stay or stay < 1:
        raise InputError(
            f"`times` and `values` must be equally many and at least `stay`; got {len(times)}, {len(values)}, {stay}."
        )
    # Metrics are shares of a finite set: a difference of exactly five points must not fall to rounding.
    close = np.abs(np.asarray(values, dtype=np.float64) - oracle) <= tolerance + 1e-9
    for start in range(len(values) - stay + 1):
        if close[start : start + stay].all():
            return Duration(float(times[start]), reached=True)
    return Duration(float(times[-1]), reached=False)


def summarize(durations: Sequence[Duration]) -> DurationSummary:
    """Mean, spread and Kaplan–Meier median over seeds, with the count of those that got there."""
    values = np.array([duration.value for duration in durations], dtype=np.float64)
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    median = kaplan_meier(durations).median
    return DurationSummary(
        float(values.mean()), spread, sum(d.reached for d in durations), len(values), median
    )


def duration_interval(
    durations: Sequence[Duration], *, resolution: float
) -> tuple[float, float | None] | None:
    """95 % interval of the mean time to unlearn: Student's t over seeds, and at least `resolution` to each side.

    Another machine rounds differently, which changes a run as another seed would: the spread over seeds covers it.

    Args:
        durations: one for each seed.
        resolution: time between two evaluations; no time is known more exactly than that.

    Returns:
        The ends, the lower not below 0 and the upper None where a seed never reached the oracle; None for one seed.
    """
    if len(durations) < 2:
        return None
    values = np.array([duration.value for duration in durations], dtype=np.float64)
    error = float(t.ppf(0.975, len(values) - 1)) * float(values.std(ddof=1)) / np.sqrt(len(values))
    half, mean = max(float(error), resolution), float(values.mean())
    return max(0.0, mean - half), mean + half if all(d.reached for d in durations) else None
