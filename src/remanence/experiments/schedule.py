"""When to measure, and on how many examples, so that measuring does not cost more than unlearning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.tasks import derive_seed
from remanence.training import placed_steps
from remanence.types import Ids, as_ids

STEP = 3
"""A training step costs about three forward passes over its batch."""
SHARE = 1.0
MOST = 40


def every_steps(total_steps: int, every: int) -> NDArray[np.int64]:
    """Step 0, every `every` steps, and the last."""
    if every < 1:
        raise InputError(f"`every` must be at least 1 step; got {every}.")
    return np.unique(np.append(np.arange(0, total_steps, every), total_steps)).astype(np.int64)


def thinning_steps(total_steps: int, every: int, *, first_every: int, until: int) -> NDArray[np.int64]:
    """Step 0, every `first_every` steps up to step `until`, then every `every` steps, and the last.

    A model that is fine-tuned from zero training loss forgets within its first steps, which must be seen closely.
    """
    if first_every < 1 or until < 0:
        raise InputError(
            f"`first_every` must be at least 1 step, `until` at least 0; got {first_every}, {until}."
        )
    dense = np.arange(0, min(until, total_steps) + 1, first_every)
    later = every_steps(total_steps, every)
    return np.unique(np.concatenate([dense, later])).astype(np.int64)


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


def half_of(split: Split, half: int) -> Split:
    """The split with one of the two halves of its retain and test examples; the forget set stays whole.

    The half of an example depends on its id alone, so it is the same for every forget set, model and seed.

    Args:
        split: the data.
        half: 0 or 1.
    """
    if half not in (0, 1):
        raise InputError(f"`half` must be 0 or 1; got {half}.")
    retain, test = (_ids_of_half(part.ids, half) for part in (split.retain, split.test))
    if not len(retain) or not len(test):
        raise InputError(
            "Retain and test data must be enough for two halves; got "
            f"{len(split.retain)} and {len(split.test)} examples."
        )
    kept = np.concatenate([split.forget.ids, retain])
    return Split(split.train.take(kept), split.test.take(test), split.forget_set)


def _ids_of_half(ids: Ids, half: int) -> Ids:
    halves = [derive_seed(0, "half", example) % 2 for example in ids.tolist()]
    return as_ids([example for example, chosen in zip(ids.tolist(), halves, strict=True) if chosen == half])


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
