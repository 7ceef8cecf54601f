"""Which recorded norm is used for which training step, by the rules right, left, trapezoid and upper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.types import check_choice

Rule = Literal["right", "left", "trapezoid", "upper"]
Floats = NDArray[np.float64]
RULES = ("right", "left", "trapezoid", "upper")


@dataclass(frozen=True)
class StepRows:
    """For steps t = 1..T, the row of norms that is used for each, and its weight in the step."""

    rows: NDArray[np.int64]
    share: float


def rows_for_steps(rule: Rule, steps: NDArray[np.int64], total: int) -> tuple[StepRows, ...]:
    """The rows used for every step, for checkpoints at `steps` (steps already taken) of `total` training steps.

    Step t moves w_{t−1}. Between checkpoints s < s′, steps s+1..s′ take the norm at s′ (`right`, the paper's
    rule), at s (`left`), half of each (`trapezoid`), or the larger of the two (`upper`, for which `norm_rows`
    has the maxima). Steps before the first checkpoint or after the last take the nearest one.
    """
    check_choice("rule", rule, RULES)
    if steps[-1] > total:
        raise InputError(
            f"`steps` must not pass the end of training, step {total}; got a checkpoint at step {steps[-1]}."
        )
    right = np.searchsorted(steps, np.arange(1, total + 1))
    left = np.maximum(right - 1, 0)
    if rule == "upper":
        return (StepRows(right, 1.0),)
    right = np.minimum(right, len(steps) - 1)
    choices = {"right": ((right, 1.0),), "left": ((left, 1.0),), "trapezoid": ((right, 0.5), (left, 0.5))}
    return tuple(StepRows(rows, share) for rows, share in choices[rule])


def norm_rows(rule: Rule, norms: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The rows that `rows_for_steps` refers to: the norms themselves, or for `upper` the maxima of neighbors.

    Row i of the maxima covers checkpoints i − 1 and i; the first row and the last cover a single checkpoint.
    """
    if rule != "upper":
        return norms
    return np.concatenate([norms[:1], np.maximum(norms[:-1], norms[1:]), norms[-1:]])
