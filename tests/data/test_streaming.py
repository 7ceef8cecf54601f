"""Data larger than memory: nothing but one batch and the results is kept."""

import resource

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import remanence as rm
from remanence.data import StreamedExamples
from remanence.training.example_statistics import example_statistics

pytestmark = pytest.mark.data
SHAPE = (3, 256, 256)
BYTES = 4 * 3 * 256 * 256


class Generated(Dataset[tuple[Tensor, int]]):
    """Pictures that are made when they are read, and never stored."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if not 0 <= row < self.n:
            raise IndexError(row)
        return torch.full(SHAPE, row % 7 / 7), row % 10


def peak() -> float:
    """Largest memory of this process so far, in bytes."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_twenty_gigabytes_are_scored_with_flat_memory() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(64), nn.Flatten(), nn.Linear(48, 10))

    recipe = rm.Recipe(epochs=1, learning_rate=0.1)
    n = int(20e9 / BYTES) + 1
    task = rm.Task(build, Generated(n), Generated(100), recipe)
    assert isinstance(task.train, StreamedExamples)
    model = task.new_model(0)
    some = task.train.take(task.train.ids[:1000])
    first = example_statistics(model, some)
    before = peak()
    row = example_statistics(model, task.train)
    grown = peak() - before
    assert len(row["norms"]) == n
    np.testing.assert_allclose(row["norms"][:1000], first["norms"], rtol=1e-5)
    assert grown < 200e6, f"memory grew by {grown / 1e6:.0f} MB over {n * BYTES / 1e9:.0f} GB"
