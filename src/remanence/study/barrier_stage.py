"""A stage that measures the loss barrier between two models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remanence.audit.barrier import loss_barriers
from remanence.data import Examples
from remanence.stages import Read, Stage
from remanence.storage import Draft
from remanence.study.artifacts import read_forget_set, read_model
from remanence.tasks import TaskSource


@dataclass(frozen=True, eq=False, kw_only=True)
class BarrierStage(Stage):
    """The loss along the line between two models, on several parts of the data."""

    kind = "barrier"
    version = 2

    task: TaskSource
    points: int
    subsets: tuple[str, ...]
    examples: int
    first: Stage
    second: Stage
    forget: Stage

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the barrier and the curve on each part of the data."""
        task = self.task.open()
        split = task.split(read_forget_set(read(self.forget)))
        first, second = (read_model(read(stage), task) for stage in (self.first, self.second))
        parts = {"forget": split.forget, "retain": split.retain, "test": split.test, "train": split.train}
        data = {name: _some(parts[name], self.examples) for name in self.subsets}
        barriers = loss_barriers(
            first, second, data, statistics=_some(split.retain, self.examples), points=self.points
        )
        draft.rows(
            "barriers",
            (
                {"subset": name, "value": barrier.value, "place": barrier.place}
                for name, barrier in barriers.items()
            ),
        )
        draft.tensors(
            "curves",
            {
                f"{name}.{column}": getattr(barrier, column)
                for name, barrier in barriers.items()
                for column in ("places", "losses")
            },
        )


def _some(examples: Examples, size: int) -> Examples:
    """At most `size` examples, always the same ones; all when 0."""
    if not size or len(examples) <= size:
        return examples
    rows = np.random.default_rng(0).choice(len(examples), size, replace=False)
    return examples.take(examples.ids[np.sort(rows)])
