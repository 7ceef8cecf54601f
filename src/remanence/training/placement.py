"""When to record: which steps of a run become checkpoints of its trace."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.types import check_choice

Placement = Literal["even", "log", "adaptive"]
CANDIDATES = 150
"""Evenly spaced moments at which the adaptive placement looks whether the model has moved on."""


def candidate_steps(total_steps: int, checkpoints: int, placement: Placement) -> NDArray[np.int64]:
    """The moments that may be recorded: all of them for a fixed placement, some for the adaptive one."""
    if placement != "adaptive":
        return placed_steps(total_steps, checkpoints, placement)
    return placed_steps(total_steps, min(CANDIDATES, total_steps), "even")


def placed_steps(total_steps: int, checkpoints: int, placement: Placement = "even") -> NDArray[np.int64]:
    """Step 0 and `checkpoints` later ones, the last being the end of training.

    Args:
        total_steps: optimizer steps of the run.
        checkpoints: how many moments after the start.
        placement: `even` is the paper's; `log` records densely early, when gradients change fastest.
    """
    check_choice("placement", placement, ("even", "log"))
    if not 1 <= checkpoints <= total_steps:
        raise InputError(
            f"`checkpoints` must be between 1 and the number of training steps, {total_steps}; got {checkpoints}."
        )
    if placement == "even":
        return np.round(np.linspace(0, total_steps, checkpoints + 1)).astype(np.int64)
    wanted = np.round(np.geomspace(1, total_steps, checkpoints)).astype(np.int64)
    wanted[-1] = total_steps
    # early ones fall on the same step; push each to the first free step
    for i in range(1, checkpoints):
        wanted[i] = max(wanted[i], wanted[i - 1] + 1)
    wanted = np.minimum(wanted, total_steps - np.arange(checkpoints)[::-1])
    return np.concatenate([[0], wanted]).astype(np.int64)
