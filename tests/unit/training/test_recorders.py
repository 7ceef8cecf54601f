"""Recorders in loops that are not ours."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import remanence as rm
from remanence.data import digits
from remanence.models import small_conv
from remanence.storage import open_folder, read_trace

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


def train_in_blocks(net: nn.Module, recorder: rm.Recorder | None, epochs: int = 2) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader = DataLoader(
            WithIds(pairs()), batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(epoch)
        )
        for inputs, labels, ids in loader:
            optimizer.zero_grad()
            with nullcontext() if recorder is None else recorder.batch(ids):
                nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            if recorder is not None:
                recorder.step()


def with_overhead(net: nn.Module, overhead: float = math.inf, epochs: int = 2, **options: Any) -> rm.Recorder:
    named = rm.with_ids(pairs(), np.arange(100, 140))
    mechanism = replace(MECHANISM, steps=4 * epochs)
    return rm.Recorder(net, named, total_steps=4 * epochs, mechanism=mechanism, overhead=overhead, **options)


def coupled_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))


def test_in_flight_norms_are_those_of_the_step_that_used_the_example() -> None:
    net = model()
    recorder = with_overhead(net)
    first = rm.example_gradient_norms(net, *pairs().tensors).numpy()
    train_in_blocks(net, recorder)
    trace = recorder.finish()
    assert trace.steps.tolist() == [4, 8]
    assert trace.moments is not None
    assert sorted(trace.moments[0].tolist()) == sorted(list(range(4)) * 10)
    at_start = trace.moments[0] == 0
    np.testing.assert_allclose(trace.norms[0][at_start], first[at_start], rtol=1e-4)
    assert trace.interpolated == 0
    assert rm.theory.privacy_loss(trace).status == rm.Status.HEURISTIC
    assert "norms in flight at 8 of 8 steps" in recorder.summary


@pytest.mark.parametrize("build", [model, coupled_model], ids=["in flight", "passes"])
@pytest.mark.parametrize("overhead", [math.inf, 0.05])
def test_a_recorder_with_a_budget_leaves_the_weights_bit_for_bit(
    build: Callable[[], nn.Module], overhead: float
) -> None:
    plain, watched = build(), build()
    train_in_blocks(plain, None)
    recorder = with_overhead(watched, overhead)
    train_in_blocks(watched, recorder)
    recorder.finish()
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def test_shared_norms_change_the_weights_by_rounding_only() -> None:
    plain, watched = model(), model()
    train_in_blocks(plain, None)
    train_in_blocks(watched, with_overhead(watched, share=True))
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_unmeasured_norms_are_filled_from_the_errors_and_marked(tmp_path: Path) -> None:
    """With next to no budget only a few steps are measured; at the end those that none has measured."""
    net = model()
    recorder = with_overhead(net, 1e-9, epochs=3, out=tmp_path / "run")
    train_in_blocks(net, recorder, epochs=3)
    recorder.finish()
    steps = int(recorder.summary.removeprefix("norms in flight at ").split()[0])
    assert 3 <= steps <= 9, (
        "those that show what a step costs, and new examples if that is cheaper than at the end"
    )
    trace = read_trace(open_folder(tmp_path / "run"))
    assert trace.measured is not None
    assert 0 < trace.interpolated < trace.norms.size
    assert trace.measured.any(axis=0).all(), "every example is measured at least once"
    assert (trace.norms > 0).all()
    assert "interpolated" in rm.theory.privacy_loss(trace).reasons[-1]


def test_a_model_with_batch_norm_is_recorded_in_passes() -> None:
    net = coupled_model()
    recorder = with_overhead(net)
    train_in_blocks(net, recorder)
    trace = recorder.finish()
    assert trace.moments is None
    np.testing.assert_allclose(
        trace.norms[-1], rm.example_gradient_norms(net, *pairs().tensors).numpy(), rtol=1e-4
    )
    assert "2 exact passes" in trace.provenance["recording"]
    with pytest.raises(rm.InputError, match="BatchNorm"):
        with_overhead(net, in_flight=True)


def test_a_part_of_the_examples_is_recorded_in_flight() -> None:
    net = model()
    recorder = with_overhead(net, ids=[103, 117, 139])
    train_in_blocks(net, recorder)
    trace = recorder.finish()
    whole = with_overhead(again := model())
    train_in_blocks(again, whole)
    np.testing.assert_allclose(trace.norms, whole.finish().norms[:, [3, 17, 39]], rtol=1e-5)


def test_without_batch_blocks_the_budget_is_spent_on_passes() -> None:
    net = model()
    recorder = with_overhead(net)
    for _ in range(8):
        recorder.step()
    assert recorder.finish().steps.tolist() == [4, 8]


def test_an_interrupted_recording_with_a_budget_resumes(tmp_path: Path) -> None:
    net = model()
    train_in_blocks(net, with_overhead(net, out=tmp_path / "run", epochs=4))
    recorder = with_overhead(net, out=tmp_path / "run", epochs=4, start=8)
    train_in_blocks(net, recorder)
    trace = recorder.finish()
    assert trace.steps.tolist() == [4, 8, 12, 16]
    assert trace.interpolated == 0
    assert read_trace(open_folder(tmp_path / "run")).steps.tolist() == [4, 8, 12, 16]


def test_a_recorder_with_a_budget_refuses_what_it_cannot_do() -> None:
    net = model()
    with pytest.raises(rm.InputError, match="not both"):
        with_overhead(net, checkpoints=3)
    with pytest.raises(rm.InputError, match="`overhead` must be a share"):
        with_overhead(net, 0.0)
    recorder = with_overhead(net)
    with (
        pytest.raises(rm.errors.DataError, match="one id per example of the batch, 10; got 4"),
        recorder.batch(np.arange(100, 104)),
    ):
        net(pairs().tensors[0][:10]).sum().backward()
    with (
        pytest.raises(rm.InputError, match="must run inside the `batch` block"),
        with_overhead(coupled_model()).batch([100]),
    ):
        pass
    even = rm.Recorder(net, pairs(), total_steps=8, checkpoints=2, mechanism=MECHANISM)
    with pytest.raises(rm.InputError, match="give the recorder an `overhead`"), even.batch([0]):
        pass
    with pytest.raises(rm.InputError, match="must reach step 8"):
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
