"""Measure a model, and read measurements back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from remanence.audit import METRICS, Context, evaluate
from remanence.data import Split
from remanence.storage import Folder
from remanence.types import Measurement

NO_CONTEXT = Context()
EXCESS = "excess"
"""Name of the measurement of `Context.excess`."""


def measure(
    model: nn.Module,
    split: Split,
    metrics: Sequence[str],
    *,
    step: int,
    seed: int,
    context: Context = NO_CONTEXT,
) -> list[Measurement]:
    """All metrics from one pass over the data; the context holds what some of them need, such as the poison.

    If the context knows the excess of a model, it is measured too.
    """
    evaluation = evaluate(model, split, context)
    values = {name: METRICS[name](evaluation) for name in metrics}
    if context.excess is not None:
        values[EXCESS] = context.excess(evaluation)
    return [Measurement(name, split.forget_set.name, value, step, seed) for name, value in values.items()]


def read_measurements(folder: Folder) -> list[Measurement]:
    """The measurements in an artifact or a run, in the order of their steps."""
    return folder.records("measurements", Measurement)


def read_curve(folder: Folder, metric: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric in an artifact."""
    return curve(read_measurements(folder), metric)


def curve(rows: Iterable[Measurement], metric: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric."""
    chosen = [row for row in rows if row.metric == metric]
    return [row.step for row in chosen], [row.value for row in chosen]
