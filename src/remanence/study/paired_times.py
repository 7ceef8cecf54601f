"""Which of two runs took longer, and by how much, when some times are censored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remanence.experiments import Duration


@dataclass(frozen=True)
class Gap:
    """How much longer one run took than another.

    Args:
        value: in epochs; negative when it was shorter.
        open: the longer of the two did not reach the target, so the gap is wider than this.
    """

    value: float
    open: bool = False


def gap(one: Duration, other: Duration) -> Gap | None:
    """One time minus the other; None when the shorter one is censored, so that the order is not known."""
    shorter, longer = sorted((one, other), key=lambda duration: duration.value)
    if one.value == other.value:
        return Gap(0.0) if one.reached and other.reached else None
    return Gap(one.value - other.value, open=not longer.reached) if shorter.reached else None


def gap_score(difference: Gap | None) -> float:
    """A gap as a number to test: 0 where the order is not known, a lower bound where the gap is open."""
    return 0.0 if difference is None else difference.value


def shown(gaps: Sequence[Gap]) -> str:
    """The mean gap and its spread; ≥ or ≤ where it is only a bound."""
    if not gaps:
        return "unknown"
    open_ = {difference.value > 0 for difference in gaps if difference.open}
    bound = {(): "", (True,): "≥ ", (False,): "≤ "}.get(tuple(open_), "about ")
    return bound + spread([difference.value for difference in gaps])


def spread(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation; a single value has none."""
    if not len(values):
        return "unknown"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"


def spread_of_times(durations: Sequence[Duration]) -> str:
    """Mean ± sample standard deviation over seeds; a lower bound where some did not reach the target."""
    bound = "" if all(duration.reached for duration in durations) else "≥ "
    return bound + spread([duration.value for duration in durations])
