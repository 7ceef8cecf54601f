"""When to record: at fixed steps, or whenever the model has changed.

The adaptive placement computes the errors of a few fixed examples with forward passes alone. When their order has
changed since the last recorded checkpoint, all examples are recorded.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from remanence.errors import InputError
from remanence.types import check_choice

Placement = Literal["even", "log", "adaptive"]
CANDIDATES = 150
"""Number of evenly spaced steps at which the adaptive placement checks whether the model has changed."""
PROBES = 256
"""Number of examples whose errors the adaptive placement compares."""
TOLERANCE = 0.8
"""Record when the rank correlation (Spearman) of their errors falls below this."""
LONGEST_GAP = 3.0
"""Record at the latest at this multiple of the last recorded step."""


def candidate_steps(total_steps: int, checkpoints: int, placement: Placement) -> NDArray[np.int64]:
    """The steps that may be recorded: all of them with a fixed placement, some with the adaptive one."""
    if placement != "adaptive":
        return placed_steps(total_steps, checkpoints, placement)
    return placed_steps(total_steps, min(CANDIDATES, total_steps), "even")


def period_ends(total_steps: int, sampling_rate: float) -> NDArray[np.int64]:
    """Step 0 and the ends of the epochs, or of as many equal periods as there are candidates, if that is fewer."""
    epochs = max(1, round(total_steps * sampling_rate))
    return placed_steps(total_steps, min(epochs, CANDIDATES, total_steps), "even")


def placed_steps(total_steps: int, checkpoints: int, placement: Placement = "even") -> NDArray[np.int64]:
    """Step 0 and `checkpoints` later steps, the last of which is the end of training.

    Args:
        total_steps: optimizer steps of the run.
        checkpoints: number of steps after the start.
        placement: `even`, as in the paper; or `log`, denser at the start, where gradients change fastest.
    """
    check_choice("placement", placement, ("even", "log"))
    if not 1 <= checkpoints <= total_steps:
        raise InputError(
            f"`checkpoints` must be between 1 and the number of training steps, {total_steps}; got {checkpoints}."
        )
    if placement == "even":
        return np.round(np.linspace(0, total_steps, checkpoints + 1)).astype(np.int64)
    steps = np.round(np.geomspace(1, total_steps, checkpoints)).astype(np.int64)
    steps[-1] = total_steps
    # rounding makes early steps equal; move each to the next free step
    for i in range(1, checkpoints):
        steps[i] = max(steps[i], steps[i - 1] + 1)
    steps = np.minimum(steps, total_steps - np.arange(checkpoints)[::-1])
    return np.concatenate([[0], steps]).astype(np.int64)


def is_due(
    step: int,
    last_step: int,
    errors: NDArray[np.floating[Any]],
    last_errors: NDArray[np.floating[Any]],
    tolerance: float = TOLERANCE,
) -> bool:
    """Whether the adaptive placement records this step, given the errors of the probes now and when last recorded."""
    return step >= LONGEST_GAP * max(last_step, 1) or _rank_correlation(errors, last_errors) < tolerance


def within_budget(recorded: int, checkpoints: int, progress: float) -> bool:
    """Whether the adaptive placement may record another checkpoint at this fraction of training.

    Half of the checkpoints may be used at any time, the other half only as training progresses, so that a small number
    is not used up at the very start.
    """
    return recorded < checkpoints * (1 + progress) / 2


def probe_positions(n: int, seed: int = 0) -> NDArray[np.int64]:
    """Positions of the examples whose errors the adaptive placement compares."""
    return np.sort(np.random.default_rng(seed).choice(n, min(PROBES, n), replace=False))


def _rank_correlation(a: NDArray[np.floating[Any]], b: NDArray[np.floating[Any]]) -> float:
    """Spearman's correlation; −1 if all values of one side are equal."""
    ranks_a, ranks_b = rankdata(a), rankdata(b)
    if np.ptp(ranks_a) == 0 or np.ptp(ranks_b) == 0:
        return -1.0
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])
