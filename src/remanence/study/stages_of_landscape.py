"""A stage that measures the loss barrier between two models."""

from __future__ import annotations

import numpy as np

from remanence.audit.barrier import loss_barriers
from remanence.data import Examples
from remanence.storage import Draft
from remanence.study.material import Inputs, Params, model_from, split_of
from remanence.study.stages import StageKind


def _barrier(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: one model, another, a forget set."""
    split = split_of(params, inputs[2])
    a, b = (model_from(each, params, split.train) for each in inputs[:2])
    parts = {"forget": split.forget, "retain": split.retain, "test": split.test, "train": split.train}
    data = {name: _some(parts[name], params["examples"]) for name in params["subsets"]}
    found = loss_barriers(
        a, b, data, statistics=_some(split.retain, params["examples"]), points=params["points"]
    )
    draft.rows(
        "barriers",
        ({"subset": name, "value": each.value, "place": each.place} for name, each in found.items()),
    )
    draft.tensors(
        "curves",
        {
            f"{name}.{column}": getattr(each, column)
            for name, each in found.items()
            for column in ("places", "losses")
        },
    )


def _some(examples: Examples, size: int) -> Examples:
    """At most so many, always the same."""
    if not size or len(examples) <= size:
        return examples
    rows = np.random.default_rng(0).choice(len(examples), size, replace=False)
    return examples.take(examples.ids[np.sort(rows)])


BARRIER = StageKind("barrier", 1, _barrier)
