"""When to measure, and on how many examples, so that measuring does not cost more than unlearning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.tasks import derive_seed
from remanence.training import placed_steps

STEP = 3
"""A training step costs about three forward passes over its batch."""
SHARE = 1.0
MOST = 40


def every_steps(total_steps: int, every: int) -> NDArray[np.int64]:
    """Step 0, every `every` steps, and the last."""
    if every < 1:
        raise InputError(f"`every` must be at least 1 step; got {every}.")
    return np.unique(np.append(np.arange(0, total_steps, every), total_steps)).astype(np.int64)


def affordable_steps(
    total_steps: int, *, batch_size: int, watched: int, share: float = SHARE, most: int = MOST
) -> NDArray[np.int64]:
    """Step 0, steps that are dense at first and then ever sparser, and the last, within a budget of evaluations.

    Args:
        total_steps: steps of the run.
        batch_size: examples that a step trains on.
        watched: examples that one evaluation passes through the model.
        share: cost of all evaluations relative to all training steps. Start and end are always included.
        most: largest number of evaluations after the start.
    """
    budget = share * STEP * batch_size * total_steps
    evaluations = min(most, total_steps, max(1, int(budget // watched) - 1))
    return placed_steps(total_steps, evaluations, "log")


def sampled(split: Split, size: int, seed: int) -> Split:
    """The split with at most `size` retain and test examples, chosen once by the seed; the forget set stays whole."""
    if size < 1:
        raise InputError(f"`sample` must be at least 1 example; got {size}.")
    retain, test = (
        _some(part, size, derive_seed(seed, "sample", name))
        for part, name in ((split.retain, "retain"), (split.test, "test"))
    )
    kept = np.concatenate([split.forget.ids, retain.ids])
    return Split(split.train.take(kept), test, split.forget_set)


def _some(examples: Examples, size: int, seed: int) -> Examples:
    if len(examples) <= size:
        return examples
    rows = np.random.default_rng(seed).choice(len(examples), size, replace=False)
    return examples.take(examples.ids[np.sort(rows)])
