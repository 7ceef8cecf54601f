"""In flight there is no loop to answer to: what the rules cannot see or replay is refused, never left out."""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import remanence as rm
from remanence.errors import InputError
from remanence.gradients import FallbackWarning, norms_in_flight
from remanence.gradients.layers.general import GeneralRule
from remanence.gradients.layout import DivergedError

sys.path.insert(0, str(Path(__file__).parents[2] / "oracles"))
from architectures import SLOW

TARGETS = torch.arange(6)


class Assigned(nn.Module):
    """A parameter that is written into a tensor."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked, self.token, self.head = masked, nn.Parameter(torch.randn(6)), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(x).unsqueeze(1).repeat(1, 2, 1)
        if self.masked:
            h[h.sum(2) > 0] = self.token
        else:
            h[:, 0] = self.token
        out: Tensor = self.head(h.prod(1))
        return out


def step(model: nn.Module, x: Tensor, *, share: bool = True, **options: object) -> Tensor:
    with norms_in_flight(model, share=share, **options) as norms:  # type: ignore[arg-type]
        F.cross_entropy(model(x), TARGETS).backward()
    return norms.values


@pytest.mark.parametrize("name", ["assigned", "masked", "scripted"])
@pytest.mark.parametrize("share", [True, False], ids=["share", "alone"])
def test_a_parameter_out_of_sight_is_refused(name: str, share: bool) -> None:
    torch.manual_seed(0)
    model = SLOW[name](lambda low, high: low)[0] if name == "scripted" else Assigned(name == "masked")
    hidden = "weight" if name == "scripted" else "token"
    x = torch.randn(6, 6)
    for _ in range(2):
        with pytest.raises(InputError, match=f"`{hidden}` got a gradient from something else"):
            step(model, x, share=share)
    seen = step(model, x, share=share, parameters=["head.weight"])
    with pytest.warns(FallbackWarning):
        rows = rm.example_gradient_norms(model, x, TARGETS, by_parameter=True)
    torch.testing.assert_close(seen, rows["head.weight"])
    assert not getattr(model, hidden)._backward_hooks


def test_an_idle_parameter_is_zero_and_may_be_decayed_by_the_loss() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.idle, self.head = nn.Parameter(torch.ones(3)), nn.Linear(4, 10)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(x)
            return out

    torch.manual_seed(0)
    model, x = Idle(), torch.randn(6, 4)
    with norms_in_flight(model) as norms:
        (F.cross_entropy(model(x), TARGETS) + 0 * model.idle.sum()).backward()
    assert norms.by_parameter["idle"].tolist() == [0.0] * 6
    torch.testing.assert_close(norms.values, rm.example_gradient_norms(model, x, TARGETS))


class Splitting(nn.Module):
    """Another course for a batch than for one example, in the middle of the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.layer(x)) if len(x) == 1 else torch.sigmoid(self.layer(x))
        out: Tensor = self.head(x)
        return out


def test_another_course_is_refused_wherever_it_is_found() -> None:
    with pytest.raises(InputError, match=r"same calls for a batch.*example_gradient_norms"):
        step(Splitting(), torch.randn(6, 4))


class Paired(nn.Module):
    """A learned temperature over similarities of all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.temperature = nn.Linear(4, 5), nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        z = self.layer(x)
        return z @ z.T / self.temperature


def test_pairs_of_examples_are_refused() -> None:
    with pytest.raises(InputError, match="same calls for a batch"):
        step(Paired(), torch.randn(6, 4))


class Recurrent(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2, dropout=dropout, batch_first=True)
        self.head = nn.Linear(5, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


def test_a_layer_without_a_rule_says_so_once() -> None:
    torch.manual_seed(0)
    model, x = Recurrent(0.0), torch.randn(6, 5, 4)
    with pytest.warns(FallbackWarning, match="Layer `lstm`"):
        step(model, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(model, x)


def test_random_numbers_in_a_layer_without_a_rule_are_refused() -> None:
    torch.manual_seed(0)
    model, x = Recurrent(0.5), torch.randn(6, 5, 4)
    with pytest.raises(InputError, match=r"must not draw random numbers in flight; `lstm` does"):
        step(model, x)
    model.eval()
    with pytest.warns(FallbackWarning):
        found = step(model, x)
    with pytest.warns(FallbackWarning):
        expected = rm.example_gradient_norms(model, x, TARGETS)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("chosen", [["1.weight"], ["1.bias"], ["1.weight", "1.bias"]], ids=str)
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_parameters_that_are_not_chosen_get_their_gradients(chosen: list[str], norm: str) -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(4) if norm == "batch" else nn.GroupNorm(2, 4)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)).eval()
    x, twin = torch.randn(6, 3, 6, 6), copy.deepcopy(model)
    for _ in range(2):  # the second batch knows which parameters are used once
        model.zero_grad()
        found = step(model, x, parameters=chosen)
    F.cross_entropy(twin(x), TARGETS).backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
    expected = rm.example_gradient_norms(twin, x, TARGETS, parameters=chosen)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def test_norms_of_double_precision_keep_their_digits() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 10).double(), torch.randn(6, 4).double()
    with norms_in_flight(model) as norms:
        F.cross_entropy(model(x), TARGETS).backward()
    expected = rm.example_gradient_norms(model, x, TARGETS)
    assert norms.values.dtype == norms.by_parameter["bias"].dtype == torch.float64
    torch.testing.assert_close(norms.values, expected, rtol=1e-12, atol=0)


def test_small_norms_are_not_squared_twice() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 10), torch.randn(6, 4)
    with norms_in_flight(model, loss_scale=2.0**80) as norms:
        F.cross_entropy(model(x), TARGETS).backward()
    expected = rm.example_gradient_norms(model, x, TARGETS) / 2.0**80
    torch.testing.assert_close(norms.values, expected, rtol=1e-5, atol=0)


def test_what_fails_in_the_backward_pass_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise DivergedError("it cannot be taken apart")

    monkeypatch.setattr(GeneralRule, "gradients", fail)
    with pytest.warns(FallbackWarning), pytest.raises(InputError, match="it cannot be taken apart"):
        step(Recurrent(0.0), torch.randn(6, 5, 4))
