"""Read what stages have written: models, forget sets, and the poison on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import nn

from remanence.data import Examples
from remanence.storage import Folder
from remanence.tasks import Poison, Task, draw_poison
from remanence.training import load_weights
from remanence.types import ForgetSet, Ids, as_ids

_DRAW = 0


@dataclass(frozen=True)
class PoisonSettings:
    """The noise on the inputs of forget sets: its variance, and how many examples of each set carry it (0: all)."""

    variance: float
    size: int

    def draw(self, train: Examples, forget_sets: Iterable[ForgetSet]) -> Poison:
        """The noise on these forget sets' inputs; the same wherever it is asked for."""
        chosen = [_some_ids(forget_set.ids, self.size) for forget_set in forget_sets]
        ids: Ids = as_ids(np.unique(np.concatenate(chosen)))
        return draw_poison(train, ids, variance=self.variance, seed=_DRAW)


def read_model(folder: Folder, task: Task) -> nn.Module:
    """A model with the weights of an artifact, in evaluation mode."""
    model = task.new_model(seed=0)
    load_weights(folder, model)
    return model.eval()


def read_forget_set(folder: Folder) -> ForgetSet:
    """The forget set that a stage chose."""
    document = folder.document("forget_set")
    return ForgetSet(document["name"], np.asarray(document["ids"]), document["provenance"])


def _some_ids(ids: Ids, size: int) -> Ids:
    if not size or len(ids) <= size:
        return ids
    return ids[np.sort(np.random.default_rng(_DRAW).choice(len(ids), size, replace=False))]
