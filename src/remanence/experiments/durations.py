"""Time to unlearn: when a metric reaches the oracle's value, and statistics of times of which some are censored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from remanence.errors import InputError

TOLERANCE = 0.05
STAY = 2


@dataclass(frozen=True)
class Duration:
    """A time to unlearn or, when `reached` is false, the time after which the search ended without success."""

    value: float
    reached: bool


@dataclass(frozen=True)
class DurationSummary:
    """Times to unlearn over seeds. A seed that did not reach the target is never dropped.

    Args:
        mean: over seeds; a censored seed counts with the time it was given, so the mean is then a lower bound.
        sd: sample standard deviation of the same numbers.
        reached: number of seeds that reached the target.
        seeds: number of seeds.
        median: by Kaplan and Meier; None when it lies beyond the time given.
    """

    mean: float
    sd: float
    reached: int
    seeds: int
    median: float | None = None


@dataclass(frozen=True, eq=False)
class Survival:
    """The share that has not reached the target yet, as a function of time.

    Args:
        times: the times at which the target was reached, increasing.
        remaining: the estimated share that takes longer than each of these times.
        last: the longest time in the data.
    """

    times: NDArray[np.float64]
    remaining: NDArray[np.float64]
    last: float

    @property
    def median(self) -> float | None:
        """The first time by which half have reached the target; None when it lies beyond the time given."""
        half = np.flatnonzero(self.remaining <= 0.5 + 1e-12)
        return float(self.times[half[0]]) if len(half) else None

    @property
    def mean_until_last(self) -> float:
        """The mean of the time or `last`, whichever comes first: the area under the curve up to there."""
        edges = np.concatenate([[0.0], self.times, [self.last]])
        return float(np.diff(edges) @ np.concatenate([[1.0], self.remaining]))


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
        values: the measurements.
        oracle: the mean of the metric over models never trained on the forget set.
        tolerance: how far off counts as close; 0.05 is five points.
        stay: for how many consecutive evaluations it must hold.
    """
    if len(times) != len(values) or len(values) < stay or stay < 1:
        raise InputError(
            f"`times` and `values` must be equally many and at least `stay`; got {len(times)}, {len(values)}, {stay}."
        )
    # Metrics are shares of a finite set: a difference of exactly five points must not depend on rounding.
    close = np.abs(np.asarray(values, dtype=np.float64) - oracle) <= tolerance + 1e-9
    for start in range(len(values) - stay + 1):
        if close[start : start + stay].all():
            return Duration(float(times[start]), reached=True)
    return Duration(float(times[-1]), reached=False)


def settled_time(
    times: Sequence[float], values: Sequence[float], oracle: float, *, tolerance: float = TOLERANCE
) -> Duration:
    """The time from which `values` is within `tolerance` of the oracle at every evaluation until the end."""
    far = np.abs(np.asarray(values, dtype=np.float64) - oracle) > tolerance + 1e-9
    last = int(np.flatnonzero(far)[-1]) if far.any() else -1
    if last == len(values) - 1:
        return Duration(float(times[-1]), reached=False)
    return Duration(float(times[last + 1]), reached=True)


def half_gap_time(times: Sequence[float], values: Sequence[float], oracle: float) -> Duration:
    """The first time at which half of the gap between the first value and the oracle is closed.

    Separates a run that is slow from one that has farther to go.
    """
    start = float(values[0])
    closed = (np.asarray(values, dtype=np.float64) - start) * np.sign(oracle - start)
    reached = np.flatnonzero(closed >= 0.5 * abs(oracle - start) - 1e-9)
    return Duration(float(times[reached[0]]), True) if len(reached) else Duration(float(times[-1]), False)


def summarize(durations: Sequence[Duration]) -> DurationSummary:
    """Mean, spread and Kaplan–Meier median over seeds, with the number of seeds that reached the target."""
    values = np.array([duration.value for duration in durations], dtype=np.float64)
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    reached = sum(duration.reached for duration in durations)
    return DurationSummary(float(values.mean()), spread, reached, len(values), kaplan_meier(durations).median)


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


def kaplan_meier(durations: Sequence[Duration]) -> Survival:
    r"""The share that takes longer than t, when some times are censored.

    Formula: :math:`S(t) = \prod_{t_i \le t} (1 - d_i / n_i)`: at each time :math:`t_i` at which the target was
    reached, :math:`d_i` of the :math:`n_i` that were still observed and had not reached it. Those censored at
    :math:`t_i` count among the :math:`n_i`.

    Source: Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations", JASA 1958.
    """
    if not durations:
        raise InputError("There must be at least one duration; got none.")
    values = np.array([duration.value for duration in durations], dtype=np.float64)
    reached = np.array([duration.reached for duration in durations])
    times = np.unique(values[reached])
    at_risk = (values[None, :] >= times[:, None]).sum(axis=1)
    arrived = ((values[None, :] == times[:, None]) & reached[None, :]).sum(axis=1)
    return Survival(times, np.cumprod(1 - arrived / at_risk), float(values.max()))
