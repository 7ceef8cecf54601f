"""What norms leave as it was: the caller's data, every `.grad`, and no memory."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import remanence as rm
from remanence.gradients import FallbackWarning, example_gradients_gram, norms_in_flight
from remanence.gradients.example_loop import loop_squared_norms
from remanence.gradients.norm_engine import NormEngine
from remanence.gradients.tracker import UseTracker
from remanence.losses import cross_entropy

sys.path.insert(0, str(Path(__file__).parents[2] / "oracles"))
from architectures import SLOW


class Assigned(nn.Module):
    """A class token written into a tensor: no function mode sees the use."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.head = nn.Parameter(torch.randn(6)), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(x).unsqueeze(1).repeat(1, 2, 1)
        h[:, 0] = self.token
        out: Tensor = self.head(h.prod(1))
        return out


@pytest.mark.parametrize("name", ["scripted", "assigned"])
@pytest.mark.parametrize("given", [False, True], ids=["none", "given"])
def test_grad_is_as_before_for_parameters_out_of_sight(name: str, given: bool) -> None:
    torch.manual_seed(0)
    model = Assigned() if name == "assigned" else SLOW["scripted"](lambda low, high: low)[0]
    before = {p: torch.ones_like(p) if given else None for p in model.parameters()}
    for parameter, gradient in before.items():
        parameter.grad = gradient
    with pytest.warns(FallbackWarning, match="from the loop"):
        rm.example_gradient_norms(model, torch.randn(5, 6), torch.arange(5))
    for parameter, gradient in before.items():
        assert parameter.grad is gradient
        assert gradient is None or torch.equal(gradient, torch.ones_like(gradient))


class Normalizing(nn.Module):
    """Changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.sub_(0.5).div_(2.0))
        return out


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_models_that_change_their_input_do_not_change_the_callers(batch_size: int) -> None:
    torch.manual_seed(0)
    model, x, y = Normalizing(), torch.randn(7, 6), torch.arange(7)
    kept = x.clone()
    found = rm.example_gradient_norms(model, x, y, batch_size=batch_size)
    assert torch.equal(x, kept)
    rows = loop_squared_norms(model, x, y, cross_entropy, dict(model.named_parameters()))
    assert torch.equal(x, kept)
    expected = torch.stack(list(rows.values())).sum(0).sqrt()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
    gram = example_gradients_gram(model, x, y)
    assert torch.equal(x, kept)
    torch.testing.assert_close(gram.diagonal().sqrt().double(), expected, rtol=1e-5, atol=0)


def test_a_rehearsal_in_flight_does_not_change_the_input() -> None:
    torch.manual_seed(0)
    model, x, y = Normalizing(), torch.randn(7, 6), torch.arange(7)
    expected = rm.example_gradient_norms(model, x, y)
    once = x.clone()
    once.sub_(0.5).div_(2.0)
    with norms_in_flight(model) as norms:
        F.cross_entropy(model(x), y).backward()
    assert torch.equal(x, once)
    torch.testing.assert_close(norms.values, expected)


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_activations_and_gram_matrices_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Flatten(), nn.Linear(128, 10))
    engine = NormEngine(model, cross_entropy, dict(model.named_parameters()))
    seen: list[weakref.ref[Any]] = []
    close = UseTracker.close

    def closing(tracker: UseTracker) -> None:
        seen.extend([weakref.ref(tracker), weakref.ref(tracker.gram_cache)])
        close(tracker)

    monkeypatch.setattr(UseTracker, "close", closing)
    engine.squared_norms(torch.randn(5, 4, 32), torch.arange(5))
    assert seen
    assert all(reference() is None for reference in seen)


@pytest.mark.parametrize("in_place", [True, False])
def test_buffers_are_as_before(in_place: bool) -> None:
    class Counts(nn.Module):
        """Counts its calls, as some modules do even in evaluation mode."""

        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if in_place:
                self.calls += 1
            else:
                self.calls = self.calls + 1
            out: Tensor = self.layer(x)
            return out

    model = Counts()
    calls = model.calls
    rm.example_gradient_norms(model, torch.randn(5, 4), torch.zeros(5, dtype=torch.long))
    assert model.calls is calls
    assert calls == 0
