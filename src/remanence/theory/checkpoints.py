"""From a few recorded checkpoints to every step of training: which norm stands for which step."""

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
class Stand:
    """For steps t = 1..T, the row of norms that stands for each, and the share of the step it carries."""

    rows: NDArray[np.int64]
    share: float


def stands_for(rule: Rule, steps: NDArray[np.int64], total: int) -> tuple[Stand, ...]:
    """Who stands for whom among checkpoints at `steps` (steps already taken) of `total` steps of training.

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
        return (Stand(right, 1.0),)
    right = np.minimum(right, len(steps) - 1)
    choices = {"right": ((right, 1.0),), "left": ((left, 1.0),), "trapezoid": ((right, 0.5), (left, 0.5))}
    return tuple(Stand(rows, share) for rows, share in choices[rule])


def norm_rows(rule: Rule, norms: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The rows that `stands_for` points into: the norms themselves, or for `upper` the maxima of neighbours.

    Row i of the maxima spans checkpoints i − 1 and i; the first and the one past the last are single.
    """
    if rule != "upper":
        return norms
    return np.concatenate([norms[:1], np.maximum(norms[:-1], norms[1:]), norms[-1:]])
