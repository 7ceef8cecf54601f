"""Gradient norms between measurements, from the error norms that a forward pass shows.

A gradient norm is nearly proportional to the error norm of its example. The factor has a level that all examples share
at a checkpoint, and a part of the example's own, which changes slowly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SMALLEST_ERROR = 1e-3
"""Smaller error norms count as this: near zero, the factor between norm and error is rounding noise."""
OWN_SHARE = 0.5
"""Share of the example's own part that is kept where it was not measured, since it is partly noise."""
FEWEST = 8
"""Measured norms that a checkpoint needs for a level of its own, if any checkpoint has as many."""
_SMALLEST_NORM = 1e-30


def interpolate_norms(
    norms: NDArray[np.floating[Any]], errors: NDArray[np.floating[Any]], steps: NDArray[np.int64]
) -> Floats:
    """Fill the norms that were not measured: log norm = log error + level of the checkpoint + part of the example.

    Levels are such that the sum of squares of the measured norms is right. Between checkpoints with a level, and
    between measurements of an example, both are interpolated linearly over the steps, and constant beyond the ends.

    Args:
        norms: [N, n], NaN where not measured; every example is measured at least once.
        errors: [N, n] error norms, NaN where an example was not seen.
        steps: the N checkpoints.
    """
    log_errors = np.log(np.maximum(along_steps(errors, steps), SMALLEST_ERROR))
    measured = ~np.isnan(norms)
    log_norms = np.log(np.maximum(norms.astype(np.float64), _SMALLEST_NORM))
    levels = along_steps(_levels(norms, log_errors, measured)[:, None], steps)
    own = along_steps(log_norms - log_errors - levels, steps)
    return np.where(measured, norms, np.exp(log_errors + levels + OWN_SHARE * own))


def along_steps(table: NDArray[np.floating[Any]], steps: NDArray[np.int64]) -> Floats:
    """Each column with its NaN replaced by linear interpolation over the steps, constant beyond the ends."""
    known = ~np.isnan(table)
    filled = table.astype(np.float64)
    for column in np.flatnonzero(~known.all(axis=0)):
        rows = known[:, column]
        filled[:, column] = np.interp(steps, steps[rows], table[rows, column])
    return filled


def _levels(norms: NDArray[np.floating[Any]], log_errors: Floats, measured: NDArray[np.bool_]) -> Floats:
    """Half the log of the ratio of summed squares of norms and errors at each checkpoint; NaN with too few norms."""
    squares = np.where(measured, norms.astype(np.float64), 0.0) ** 2
    error_squares = np.where(measured, np.exp(2 * log_errors), 0.0)
    counts = measured.sum(axis=1)
    known = counts >= min(FEWEST, counts.max())
    levels = np.full(len(norms), np.nan)
    levels[known] = 0.5 * np.log(
        np.maximum(squares[known].sum(axis=1), _SMALLEST_NORM) / error_squares[known].sum(axis=1)
    )
    return levels
