"""Which of two runs took longer, and by how much, where some are only known to take longer than they were watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remanence.trials import Duration


@dataclass(frozen=True)
class Gap:
    """How much longer one run took than another.

    Args:
        value: in epochs; negative when it was shorter.
        open: the longer of the two had not got there by the end, so the gap is wider than this.
    """

    value: float
    open: bool = False


def gap(one: Duration, other: Duration) -> Gap | None:
    """One time minus the other; none when it is not known which is longer, because the shorter was not reached."""
    shorter, longer = sorted((one, other), key=lambda each: each.value)
    if one.value == other.value:
        return Gap(0.0) if one.reached and other.reached else None
    return Gap(one.value - other.value, open=not longer.reached) if shorter.reached else None


def longer_on_average(gaps: Sequence[Gap]) -> bool | None:
    """Whether the mean gap is above 0; none when gaps that are wider than known could turn it, or there are none."""
    if not gaps:
        return None
    longer = bool(np.mean([each.value for each in gaps]) > 0)
    could_turn = any(each.open and (each.value > 0) != longer for each in gaps)
    return None if could_turn else longer


def shown(gaps: Sequence[Gap]) -> str:
    """The mean gap and its spread, with a sign where it is only a bound."""
    if not gaps:
        return "unknown"
    open_ = {each.value > 0 for each in gaps if each.open}
    bound = {(): "", (True,): "≥ ", (False,): "≤ "}.get(tuple(open_), "about ")
    return bound + spread([each.value for each in gaps])


def spread(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation; a single value has none."""
    if not len(values):
        return "unknown"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"


def spread_of_times(durations: Sequence[Duration]) -> str:
    """Mean ± sample standard deviation over seeds; a lower bound where some had not got there."""
    bound = "" if all(each.reached for each in durations) else "≥ "
    return bound + spread([each.value for each in durations])
