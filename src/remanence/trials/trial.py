"""Run an unlearning method and measure as it goes."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

from torch import nn

from remanence.audit import METRICS, Context, evaluate
from remanence.data import Split
from remanence.types import Measurement
from remanence.unlearning import Method


def measure(
    model: nn.Module,
    split: Split,
    metrics: Sequence[str],
    *,
    step: int,
    seed: int,
    context: Context = Context(),  # noqa: B008 - frozen and empty
) -> list[Measurement]:
    """All metrics from one pass over the data; the context holds what some of them need (poison)."""
    evaluation = evaluate(model, split, context)
    subset = split.forget_set.name
    return [Measurement(name, subset, METRICS[name](evaluation), step, seed) for name in metrics]


def run_trial(
    model: nn.Module,
    method: Method,
    split: Split,
    metrics: Sequence[str],
    *,
    every: int = 1,
    at: Collection[int] | None = None,
    watched: Split | None = None,
    seed: int,
) -> list[Measurement]:
    """Unlearn on a copy; measure before the first step and as it goes.

    Args:
        model: copied, not changed.
        method: with its hyperparameters.
        split: what to forget and what to keep.
        metrics: names of what to measure.
        every: steps between measurements.
        at: the steps to measure after, instead.
        watched: what to measure on, where that is less than the whole split (`sampled`).
        seed: of the unlearning.
    """
    copied = copy.deepcopy(model)
    watched = split if watched is None else watched
    rows = measure(copied, watched, metrics, step=0, seed=seed)
    for step in method(copied, split, seed=seed):
        if step % every == 0 if at is None else step in at:
            rows += measure(copied, watched, metrics, step=step, seed=seed)
    return rows
