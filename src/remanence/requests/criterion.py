"""When a request is done: what must hold, and for how long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from remanence.experiments import Duration, time_to_unlearn
from remanence.experiments.stopping import STAY
from remanence.forecast import Expectation

SMALL = 20
"""Below so many examples one example is more than five points: the criterion is then continuous."""
AIM = 0.03
"""Stop within three points of what is expected, so that five hold beside a model that is really retrained."""
SPREADS = 2.0
"""How many standard deviations of models never trained on a small set count as close."""
MAY_LOSE = 0.02
"""Test accuracy that a model may be down by when a request counts as done: two points."""
Metric = Literal["mia", "log_odds"]


@dataclass(frozen=True)
class Criterion:
    """A metric must stay this close to what a model never trained on the set would show, and the model be of use.

    Args:
        metric: `mia`, in shares, or for small sets `log_odds`.
        target: what such a model would show.
        tolerance: how far off counts as close, on both sides.
        stay: for how many evaluations in a row.
        may_lose: how far below its start test accuracy may be at these evaluations.
    """

    metric: Metric
    target: float
    tolerance: float
    stay: int = STAY
    may_lose: float = MAY_LOSE

    def time(self, rows: Sequence[Mapping[str, Any]]) -> Duration:
        """When it began to hold, or for how long it was sought in vain; from measurements."""
        shaken = self._shaken(rows)
        seen = [
            (row["step"], math.inf if row["step"] in shaken else row["value"])
            for row in rows
            if row["metric"] == self.metric
        ]
        if len(seen) < self.stay:
            return Duration(float(seen[-1][0] if seen else 0), reached=False)
        steps, values = zip(*seen, strict=True)
        return time_to_unlearn(steps, values, self.target, tolerance=self.tolerance, stay=self.stay)

    def _shaken(self, rows: Sequence[Mapping[str, Any]]) -> set[int]:
        """Steps at which the model was worse than it may be; fine-tuning mostly mends that by the next look."""
        accuracy = [(row["step"], row["value"]) for row in rows if row["metric"] == "test"]
        return {step for step, value in accuracy if value < accuracy[0][1] - self.may_lose - 1e-9}

    def holds(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the search can end."""
        return self.time(rows).reached

    def close(self, value: float) -> bool:
        """Whether one value is close."""
        return abs(value - self.target) <= self.tolerance + 1e-9

    def sentence(self) -> str:
        """The criterion in words."""
        what = {
            "mia": "the share that a membership attack calls never trained on",
            "log_odds": "the mean log-odds of the true class, relative to test examples,",
        }[self.metric]
        return (
            f"{what} is within {self.tolerance:.2g} of {self.target:.2f}, which models never trained on it show, "
            f"in {self.stay} evaluations in a row, while test accuracy is at most {100 * self.may_lose:.2g} points "
            "below where it began"
        )

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def criterion_for(size: int, expected: Expectation) -> Criterion:
    """Three points of the membership attack; for a set too small to be measured in points, two spreads of log-odds."""
    if size < SMALL:
        return Criterion("log_odds", expected.log_odds, SPREADS * expected.log_odds_spread)
    return Criterion("mia", expected.mia, AIM)
