"""The five proxies of the privacy loss that the paper compares.

Each computes one number per example from a trace; larger means harder to forget. They are heuristics, not bounds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.types import Scores, Status, Trace

_REASONS = ("A proxy ranks examples by difficulty; it is not a bound.",)


def gradient_norm_middle(trace: Trace) -> Scores:
    """Gradient norm at the checkpoint nearest the middle of training."""
    return _scores(
        "gradient_norm_middle", trace, trace.norms[_middle(trace)], step=int(trace.steps[_middle(trace)])
    )


def gradient_norm_end(trace: Trace) -> Scores:
    """Gradient norm at the last checkpoint."""
    return _scores("gradient_norm_end", trace, trace.norms[-1], step=int(trace.steps[-1]))


def gradient_norm_mean(trace: Trace) -> Scores:
    """Gradient norm averaged over the checkpoints, without the initial model."""
    return _scores("gradient_norm_mean", trace, _trained(trace, trace.norms).mean(axis=0))


def confidence(trace: Trace) -> Scores:
    """C-Proxy, inverted: one minus the probability of the true class, averaged over the checkpoints.

    The paper averages over every epoch; a trace may have been recorded at epochs or at other steps.
    `params["moments"]` says which: `epochs` or `checkpoints`.
    """
    recorded = _recorded(trace, "confidence")
    moments = "epochs" if _at_epoch_ends(trace) else "checkpoints"
    return _scores("confidence", trace, 1.0 - _trained(trace, recorded).mean(axis=0), moments=moments)


def error_norm(trace: Trace) -> Scores:
    """EL2N of a single run: distance between softmax and one-hot label in the middle of training."""
    recorded = _recorded(trace, "error")
    return _scores("error_norm", trace, recorded[_middle(trace)], step=int(trace.steps[_middle(trace)]))


def _scores(name: str, trace: Trace, values: NDArray[Any], **params: Any) -> Scores:
    return Scores(name, trace.ids, values.astype(np.float64), params, Status.HEURISTIC, _REASONS)


def _middle(trace: Trace) -> int:
    return int(np.argmin(np.abs(trace.steps - trace.mechanism.steps / 2)))


def _at_epoch_ends(trace: Trace) -> bool:
    """Whether the checkpoints are exactly the ends of all epochs."""
    # an epoch is ceil(n / B) steps; the small number keeps a rounded n / B from counting as one more
    per_epoch = math.ceil(1 / trace.mechanism.sampling_rate - 1e-9)
    ends = np.arange(per_epoch, trace.mechanism.steps + 1, per_epoch)
    return np.array_equal(ends, trace.steps[trace.steps > 0])


def _trained(trace: Trace, values: NDArray[Any]) -> NDArray[Any]:
    after_start = trace.steps > 0
    return values[after_start].astype(np.float64) if after_start.any() else values.astype(np.float64)


def _recorded(trace: Trace, column: str) -> NDArray[Any]:
    values: NDArray[Any] | None = getattr(trace, column)
    if values is None:
        raise InputError(f"This score needs the trace's `{column}`, which was not recorded.")
    return values
