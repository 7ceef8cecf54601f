"""Run an unlearning method and measure as it goes."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from remanence.audit import METRICS, evaluate
from remanence.data import Split
from remanence.types import Measurement
from remanence.unlearning import Method


def measure(
    model: nn.Module, split: Split, metrics: Sequence[str], *, step: int, seed: int
) -> list[Measurement]:
    """All metrics from one pass over the data."""
    evaluation = evaluate(model, split)
    subset = split.forget_set.name
    return [Measurement(name, subset, METRICS[name](evaluation), step, seed) for name in metrics]


def run_trial(
    model: nn.Module, method: Method, split: Split, metrics: Sequence[str], *, every: int, seed: int
) -> list[Measurement]:
    """Unlearn on a copy; measure before the first step and after every `every` steps."""
    copied = copy.deepcopy(model)
    rows = measure(copied, split, metrics, step=0, seed=seed)
    for step in method(copied, split, seed=seed):
        if step % every == 0:
            rows += measure(copied, split, metrics, step=step, seed=seed)
    return rows
