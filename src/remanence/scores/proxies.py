"""The five cheaper stand-ins for the privacy loss that the paper compares.

Each takes a trace and gives one number an example, larger meaning harder. They are heuristics: none
bounds anything.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.types import NormTrace, Scores, Status

_REASONS = ("A proxy ranks examples by difficulty; it bounds nothing.",)


def gradient_norm_middle(trace: NormTrace) -> Scores:
    """Gradient norm at the recorded moment nearest the middle of training."""
    return _scores(
        "gradient_norm_middle", trace, trace.norms[_middle(trace)], step=int(trace.steps[_middle(trace)])
    )


def gradient_norm_end(trace: NormTrace) -> Scores:
    """Gradient norm at the last recorded moment."""
    return _scores("gradient_norm_end", trace, trace.norms[-1], step=int(trace.steps[-1]))


def gradient_norm_mean(trace: NormTrace) -> Scores:
    """Gradient norm averaged over the recorded moments of training (the initial model left out)."""
    return _scores("gradient_norm_mean", trace, _trained(trace, trace.norms).mean(axis=0))


def confidence(trace: NormTrace) -> Scores:
    """C-Proxy, turned around: one minus the true class's probability, averaged over the recorded moments.

    The paper averages over every epoch; a trace may have been recorded at those moments or at others.
    `params["moments"]` says which: `epochs` or `checkpoints`.
    """
    recorded = _needed(trace, "confidence")
    moments = "epochs" if _at_epoch_ends(trace) else "checkpoints"
    return _scores("confidence", trace, 1.0 - _trained(trace, recorded).mean(axis=0), moments=moments)


def error_norm(trace: NormTrace) -> Scores:
    """EL2N of a single run: distance between softmax and one-hot label in mid-training."""
    recorded = _needed(trace, "error")
    return _scores("error_norm", trace, recorded[_middle(trace)], step=int(trace.steps[_middle(trace)]))


def _scores(name: str, trace: NormTrace, values: NDArray[Any], **params: Any) -> Scores:
    return Scores(name, trace.ids, values.astype(np.float64), params, Status.HEURISTIC, _REASONS)


def _middle(trace: NormTrace) -> int:
    return int(np.argmin(np.abs(trace.steps - trace.mechanism.steps / 2)))


def _at_epoch_ends(trace: NormTrace) -> bool:
    """Whether the recorded moments of training are the ends of its epochs, all of them and no others."""
    # an epoch is ceil(n / B) steps; the small number keeps a rounded n / B from counting as one more
    per_epoch = math.ceil(1 / trace.mechanism.sampling_rate - 1e-9)
    ends = np.arange(per_epoch, trace.mechanism.steps + 1, per_epoch)
    return np.array_equal(ends, trace.steps[trace.steps > 0])


def _trained(trace: NormTrace, values: NDArray[Any]) -> NDArray[Any]:
    after_start = trace.steps > 0
    return values[after_start].astype(np.float64) if after_start.any() else values.astype(np.float64)


def _needed(trace: NormTrace, column: str) -> NDArray[Any]:
    values: NDArray[Any] | None = getattr(trace, column)
    if values is None:
        raise InputError(f"This score needs the trace's `{column}`, which was not recorded.")
    return values
