"""Whose norms are whose: ids by a data set, a loader or the caller, and batch sizes that are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Subset, TensorDataset

import remanence as rm
from remanence.errors import DataError, InputError


@pytest.fixture
def problem() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return nn.Linear(4, 10), torch.randn(9, 4), torch.arange(9)


def test_a_shuffling_batch_sampler_must_bring_ids(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    pairs, triples = TensorDataset(x, y), TensorDataset(x, y, torch.arange(9))
    shuffled = BatchSampler(RandomSampler(pairs), 4, drop_last=False)
    with pytest.raises(DataError, match="shuffled loader"):
        rm.dataset_gradient_norms(model, DataLoader(pairs, batch_sampler=shuffled))
    with pytest.raises(DataError, match="shuffled loader"):
        rm.dataset_gradient_norms(model, DataLoader(pairs, batch_sampler=[[4, 2], [1, 0]]))
    ids, norms = rm.dataset_gradient_norms(model, DataLoader(triples, batch_sampler=shuffled))
    torch.testing.assert_close(norms, rm.example_gradient_norms(model, x, y)[torch.from_numpy(ids.copy())])


def test_a_stream_in_a_loader_is_taken_in_its_order(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(zip(x, y, strict=True))

    with pytest.raises(InputError, match="wrap a stream in a DataLoader"):
        rm.dataset_gradient_norms(model, Stream())
    ids, norms = rm.dataset_gradient_norms(model, DataLoader(Stream(), batch_size=4))
    assert ids.tolist() == list(range(9))
    torch.testing.assert_close(norms, rm.example_gradient_norms(model, x, y))


def test_a_data_sets_own_ids_are_used(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    names = [f"image-{i}" for i in range(9)]
    data = rm.with_ids(TensorDataset(x, y), names)
    assert rm.dataset_gradient_norms(model, data).ids.tolist() == names
    assert rm.dataset_gradient_norms(model, DataLoader(data, batch_size=4)).ids.tolist() == names
    part = Subset(data, [5, 2])
    assert rm.dataset_gradient_norms(model, part).ids.tolist() == ["image-5", "image-2"]
    assert rm.dataset_gradient_norms(model, data, ids=range(9)).ids.tolist() == list(range(9))


def test_double_precision_with_the_automatic_batch_size(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    _, norms = rm.dataset_gradient_norms(model, TensorDataset(x, y), dtype=torch.float64)
    assert norms.dtype == torch.float64
    torch.testing.assert_close(norms, rm.example_gradient_norms(model, x, y, dtype=torch.float64))


@pytest.mark.parametrize("wrong", ["32", 32.0, 0, -1, True, None], ids=repr)
def test_a_batch_size_that_is_none_is_refused(problem: tuple[nn.Module, Tensor, Tensor], wrong: Any) -> None:
    model, x, y = problem
    with pytest.raises(InputError, match="`batch_size` must be 'auto' or a whole number"):
        rm.dataset_gradient_norms(model, TensorDataset(x, y), batch_size=wrong)
    with pytest.raises(InputError, match="`batch_size` must be 'auto' or a whole number"):
        rm.example_gradient_norms(model, x, y, batch_size=wrong)


def test_a_batch_size_may_come_from_an_array(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    seen: list[int] = []
    four: Any = np.int64(4)
    rm.dataset_gradient_norms(
        model, TensorDataset(x, y), batch_size=four, progress=lambda done, _: seen.append(done)
    )
    assert seen == [4, 8, 9]
    rm.example_gradient_norms(model, x, y, batch_size=four)
