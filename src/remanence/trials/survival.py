"""Times of which some are only known to be longer: the Kaplan–Meier estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError


@dataclass(frozen=True)
class Duration:
    """A time to unlearn, or, when `reached` is false, the time for which it was sought in vain."""

    value: float
    reached: bool


@dataclass(frozen=True, eq=False)
class Survival:
    """How large a share has not got there yet.

    Args:
        times: when somebody got there, increasing.
        remaining: the estimated share that takes longer than each of these times.
        last: the longest time that anybody was watched for.
    """

    times: NDArray[np.float64]
    remaining: NDArray[np.float64]
    last: float

    @property
    def median(self) -> float | None:
        """The first time by which half have got there; None when it lies beyond the time given."""
        half = np.flatnonzero(self.remaining <= 0.5 + 1e-12)
        return float(self.times[half[0]]) if len(half) else None

    @property
    def mean_until_last(self) -> float:
        """The mean of the time or `last`, whichever comes first: the area under the curve up to there."""
        edges = np.concatenate([[0.0], self.times, [self.last]])
        return float(np.diff(edges) @ np.concatenate([[1.0], self.remaining]))


def kaplan_meier(durations: Sequence[Duration]) -> Survival:
    r"""The share that takes longer than t, when some are only known to take longer than they were watched.

    Formula: :math:`S(t) = \prod_{t_i \le t} (1 - d_i / n_i)`: at each time :math:`t_i` at which somebody got there,
    :math:`d_i` of the :math:`n_i` who were still watched and not there. Those who left at :math:`t_i` without getting
    there count among the :math:`n_i`.

    Source: Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations", JASA 1958.
    """
    if not durations:
        raise InputError("There must be at least one duration; got none.")
    values = np.array([each.value for each in durations], dtype=np.float64)
    reached = np.array([each.reached for each in durations])
    times = np.unique(values[reached])
    at_risk = (values[None, :] >= times[:, None]).sum(axis=1)
    arrived = ((values[None, :] == times[:, None]) & reached[None, :]).sum(axis=1)
    return Survival(times, np.cumprod(1 - arrived / at_risk), float(values.max()))
