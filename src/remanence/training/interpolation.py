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
MEMORY = 0.1
"""Share of the training after which a measurement of an example's own part counts for 1/e of a fresh one."""
PRIOR = 1.0
"""The own part is drawn toward 0 as if it had been measured there this often, since it is partly noise."""
LARGEST_WEIGHT = 4.0
"""Measurements count in proportion to the squared error, up to this multiple of its mean: large norms matter most."""
FEWEST = 8
"""Measured norms that a checkpoint needs for a level of its own, if any checkpoint has as many."""
_SMALLEST_NORM = 1e-30


def interpolate_norms(
    norms: NDArray[np.floating[Any]], errors: NDArray[np.floating[Any]], steps: NDArray[np.int64]
) -> Floats:
    """Fill the norms that were not measured: log norm = log error + level of the checkpoint + part of the example.

    Levels are such that the sum of squares of the measured norms is right; between checkpoints with a level they are
    interpolated linearly over the steps. The part of an example is a weighted mean over all its measurements.

    Args:
        norms: [N, n], NaN where not measured; every example is measured at least once.
        errors: [N, n] error norms, NaN where an example was not seen.
        steps: the N checkpoints.
    """
    log_errors = np.log(np.maximum(along_steps(errors, steps), SMALLEST_ERROR))
    measured = ~np.isnan(norms)
    log_norms = np.log(np.maximum(norms.astype(np.float64), _SMALLEST_NORM))
    levels = along_steps(_levels(norms, log_errors, measured)[:, None], steps)
    residuals = np.where(measured, log_norms - log_errors - levels, 0.0)
    own = _own_parts(residuals, np.where(measured, _weights(log_errors), 0.0), steps)
    return np.where(measured, norms, np.exp(log_errors + levels + own))


def _weights(log_errors: Floats) -> Floats:
    squares = np.exp(2 * log_errors)
    weights: Floats = np.minimum(squares / squares.mean(axis=1, keepdims=True), LARGEST_WEIGHT)
    return weights


def _own_parts(residuals: Floats, weights: Floats, steps: NDArray[np.int64]) -> Floats:
    """Weighted means over the measurements of each example, those of near steps first."""
    span = max(1.0, MEMORY * float(steps[-1] - steps[0]))
    nearness = np.exp(-np.abs(steps[:, None] - steps[None, :]) / span)
    own: Floats = (nearness @ (weights * residuals)) / (nearness @ weights + PRIOR)
    return own


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
