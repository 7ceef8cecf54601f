"""Train a model of a task from scratch: by its recipe, or by the user's own function."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from remanence.data import Examples
from remanence.errors import InputError
from remanence.tasks import Task, derive_seed
from remanence.tasks.randomness import seeded
from remanence.training.example_statistics import example_statistics, trace_from_rows
from remanence.training.loop import Training
from remanence.training.ranks import SINGLE_PROCESS, Ranks
from remanence.types import Mechanism, Trace

FITTED = "The model was trained by a function of its owner, whose steps are not known here."
"""Why no theorem covers a run whose steps Remanence did not see."""


def fit_model(task: Task, examples: Examples, *, seed: int) -> tuple[nn.Module, int]:
    """A new model, trained on these examples as the task says, and the steps that this took.

    The steps of the user's own function are estimated from the number of examples that it read.
    """
    model = task.new_model(seed)
    if task.fit is not None:
        return model, _fit(task, model, examples, seed)
    training = Training(model, examples, task.recipe, seed=seed)
    for _ in training.steps():
        pass
    return model, training.step


def final_trace(
    model: nn.Module,
    examples: Examples,
    mechanism: Mechanism,
    provenance: Mapping[str, str] = MappingProxyType({}),
    ranks: Ranks = SINGLE_PROCESS,
) -> Trace:
    """A trace with one checkpoint: the end of training."""
    row = example_statistics(model, examples, ranks=ranks)
    kept = {"data": examples.digest(), **provenance}
    return trace_from_rows(examples.ids, [mechanism.steps], [row], mechanism, kept)


def _fit(task: Task, model: nn.Module, examples: Examples, seed: int) -> int:
    assert task.fit is not None  # the caller has checked
    watched = _WatchedDataset(examples.as_dataset())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with seeded(derive_seed(seed, "fit"), task.device):
        result = task.fit(model, watched, seed=seed)
    if isinstance(result, nn.Module) and result is not model:
        raise InputError("`fit` must train the model that it is given; it returned another one.")
    if not watched.reads:
        raise InputError("`fit` must train on the data set that it is given; it read nothing of it.")
    if all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)):
        raise InputError("`fit` must train the model that it is given; its weights have not changed.")
    return max(1, watched.reads // task.recipe.batch_size)


class _WatchedDataset(Dataset[Any]):
    """Counts the items that are read, also by the worker processes of a loader."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset
        self._reads = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def reads(self) -> int:
        return int(self._reads)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, row: int) -> Any:
        self._reads += 1
        return self.dataset[row]
