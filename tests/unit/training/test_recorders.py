"""Recorders in loops that are not ours."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import remanence as rm
from remanence.data import digits
from remanence.models import small_conv

MECHANISM = rm.Mechanism(sigma=0.1, sampling_rate=0.25, steps=8, batch_size=10)


def pairs(n: int = 40) -> TensorDataset:
    train, _ = digits()
    return TensorDataset(train.inputs[:n], train.labels[:n])


class WithIds(Dataset[tuple[torch.Tensor, torch.Tensor, int]]):
    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return (*self.data[i], 100 + i)


def model() -> nn.Module:
    torch.manual_seed(0)
    return small_conv(width=4)


def test_an_ordinary_loop_over_an_ordinary_data_set() -> None:
    data, net = pairs(), model()
    optimizer = torch.optim.Adam(net.parameters())
    recorder = rm.Recorder(
        net,
        rm.with_ids(data, np.arange(100, 140)),
        total_steps=8,
        checkpoints=2,
        placement="even",
        mechanism=MECHANISM,
    )
    for _ in range(2):
        for inputs, labels in DataLoader(data, batch_size=10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            recorder.step()
    trace = recorder.finish()
    assert trace.ids.tolist() == list(range(100, 140))
    expected = rm.example_gradient_norms(net, *data.tensors)
    np.testing.assert_allclose(trace.norms[-1], expected.numpy(), rtol=1e-5)


def train_in_flight(net: nn.Module, recorder: rm.InflightRecorder | None, epochs: int = 2) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader = DataLoader(
            WithIds(pairs()), batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(epoch)
        )
        for inputs, labels, ids in loader:
            optimizer.zero_grad()
            if recorder is None:
                nn.functional.cross_entropy(net(inputs), labels).backward()
            else:
                with recorder.batch(ids):
                    nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
        if recorder is not None:
            recorder.epoch()


def in_flight(net: nn.Module, **options: object) -> rm.InflightRecorder:
    named = rm.with_ids(pairs(), np.arange(100, 140))
    return rm.InflightRecorder(net, named, epochs=2, mechanism=MECHANISM, **options)  # type: ignore[arg-type]


def test_in_flight_norms_are_those_of_the_step_that_used_the_example(tmp_path: object) -> None:
    net = model()
    recorder = in_flight(net)
    first = rm.example_gradient_norms(net, *pairs().tensors).numpy()
    train_in_flight(net, recorder)
    trace = recorder.finish()
    assert trace.steps.tolist() == [4, 8]
    assert trace.moments is not None
    assert sorted(trace.moments[0].tolist()) == sorted(list(range(4)) * 10)
    at_start = trace.moments[0] == 0
    np.testing.assert_allclose(trace.norms[0][at_start], first[at_start], rtol=1e-4)
    assert rm.theory.privacy_loss(trace).status == rm.Status.HEURISTIC


def test_in_flight_leaves_training_alone_bit_for_bit() -> None:
    plain, watched = model(), model()
    train_in_flight(plain, None)
    train_in_flight(watched, in_flight(watched, share=False))
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a, b)


def test_in_flight_refuses_batch_norm_and_a_missed_example() -> None:
    with pytest.raises(rm.InputError, match="BatchNorm"):
        in_flight(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10)))
    recorder = in_flight(model())
    with pytest.raises(rm.errors.DataError, match="40 were not, the first is id 100"):
        recorder.epoch()
    with pytest.raises(rm.InputError, match="must take 2 epochs"):
        recorder.finish()


def adaptive(out: object, *, stop: int | None = None, checkpoints: int = 35) -> rm.Trace | None:
    """Sixty steps of plain SGD with an adaptive recorder; stopped and resumed when asked."""
    data, net = pairs(), model()
    start = 0 if stop is None else stop
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def one_step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(data.tensors[0]), data.tensors[1]).backward()
        optimizer.step()

    for _ in range(start):
        one_step()
    recorder = rm.Recorder(
        net,
        data,
        total_steps=60,
        placement="adaptive",
        checkpoints=checkpoints,
        mechanism=replace(MECHANISM, steps=60),
        out=out,  # type: ignore[arg-type]
        start=start,
    )
    for step in range(start, 60):
        one_step()
        recorder.step()
        if stop is None and step == 39 and out is not None and checkpoints == 34:
            return None
    return recorder.finish()


def test_the_adaptive_recorder_spends_rows_where_the_model_changes(tmp_path: object) -> None:
    trace = adaptive(None)
    assert trace is not None
    assert trace.steps[0] == 0
    assert trace.steps[-1] == 60
    assert 3 <= len(trace.steps) < 40
    early = (trace.steps <= 30).sum()
    assert early > len(trace.steps) / 2, "a model changes most at the beginning"


def test_the_adaptive_recorder_keeps_to_its_budget() -> None:
    trace = adaptive(None, checkpoints=3)
    assert trace is not None
    assert len(trace.steps) <= 4
    assert trace.steps[-1] == 60


def test_a_small_budget_is_not_spent_at_the_start() -> None:
    trace = adaptive(None, checkpoints=6)
    assert trace is not None
    assert len(trace.steps) <= 7
    assert (trace.steps <= 20).sum() <= 5, "two thirds of training must not be left to the last row"
    assert (trace.steps[1:-1] > 20).any()


def test_an_adaptive_recorder_resumes(tmp_path: Path) -> None:
    whole = adaptive(tmp_path / "whole")
    adaptive(tmp_path / "cut", checkpoints=34)
    resumed = adaptive(tmp_path / "cut", stop=40)
    assert whole is not None
    assert resumed is not None
    assert whole.steps.tolist() == resumed.steps.tolist()
    np.testing.assert_array_equal(whole.norms, resumed.norms)
