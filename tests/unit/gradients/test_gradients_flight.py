"""Norms inside a training step: the same norms, and the training that would have been without them."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import remanence as rm
from remanence.errors import InputError
from remanence.gradients import FallbackWarning, norms_in_flight
from remanence.models import resnet18, vit_small


class Tied(nn.Module):
    """Tied, reused, derived and free parameters in one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
        self.twice = nn.Linear(6, 6)

    def forward(self, ids: Tensor) -> Tensor:
        h = torch.cat([self.token.expand(len(ids), -1, -1), self.embedding(ids)], 1)
        h = torch.tanh(self.twice(torch.tanh(self.normed(self.twice(h)))))
        return F.linear(h.mean(1), self.embedding.weight)


def problems() -> dict[str, tuple[nn.Module, Any]]:
    torch.manual_seed(0)
    return {
        "resnet": (resnet18(4, "group"), torch.randn(6, 3, 16, 16)),
        "resnet_last": (resnet18(8, "group"), torch.randn(6, 3, 16, 16)),
        "channels_last": (
            resnet18(8, "group").to(memory_format=torch.channels_last),  # type: ignore[call-overload]
            torch.randn(6, 3, 16, 16).add(1.0).to(memory_format=torch.channels_last),
        ),
        "vit": (vit_small(2, dim=16, heads=2, patch=4, image=8), torch.randn(6, 3, 8, 8)),
        "tied": (Tied(), torch.randint(0, 10, (6, 5))),
        "lstm": (Lstm(), torch.randn(6, 5, 4)),
    }


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


NAMES = ["resnet", "resnet_last", "channels_last", "vit", "tied", "lstm"]
TARGETS = torch.tensor([0, 1, 2, 3, 4, 5])


def train(model: nn.Module, x: Any, *, share: bool | None, steps: int = 3) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        if share is None:
            F.cross_entropy(model(x), TARGETS).backward()
        else:
            with warnings.catch_warnings(), norms_in_flight(model, share=share) as norms:
                warnings.simplefilter("ignore", FallbackWarning)  # the LSTM's
                F.cross_entropy(model(x), TARGETS).backward()
            seen.append(norms.values)
        optimizer.step()
    return seen


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [True, False], ids=["share", "alone"])
def test_norms_are_those_of_the_model_at_that_step(name: str, share: bool) -> None:
    model, x = problems()[name]
    twin = copy.deepcopy(model)
    seen = train(model, x, share=share)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    for step, norms in enumerate(seen):
        with pytest.warns(FallbackWarning) if name == "lstm" and step == 0 else _quiet():
            expected = rm.example_gradient_norms(twin, x, TARGETS)
        torch.testing.assert_close(norms, expected, rtol=2e-4, atol=1e-6)
        optimizer.zero_grad()
        F.cross_entropy(twin(x), TARGETS).backward()
        optimizer.step()


class _quiet:  # noqa: N801
    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...


@pytest.mark.parametrize("name", NAMES)
def test_weights_keep_their_bits_when_left_alone(name: str) -> None:
    model, x = problems()[name]
    twin = copy.deepcopy(model)
    train(model, x, share=False)
    train(twin, x, share=None)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("dtype", "steps", "tolerance"),
    # In float32 a rounding difference may flip a ReLU and grow from step to step (torch's own channels-last
    # kernels do that on two threads), so several steps are compared in float64.
    [(torch.float64, 3, 1e-10), (torch.float32, 1, 1e-5)],
    ids=["float64", "float32"],
)
@pytest.mark.parametrize("name", NAMES)
def test_shared_work_gives_the_same_weights_to_rounding(
    name: str, dtype: torch.dtype, steps: int, tolerance: float
) -> None:
    model, x = problems()[name]
    model = model.to(dtype)
    x = x.to(dtype) if x.is_floating_point() else x
    twin = copy.deepcopy(model)
    train(model, x, share=True, steps=steps)
    train(twin, x, share=None, steps=steps)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_dropout_draws_the_same_numbers() -> None:
    def run(share: bool | None) -> Tensor:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 10))
        train(model, torch.ones(6, 4), share=share)
        return model[0].weight.detach()

    assert torch.equal(run(None), run(False))


def test_reduction_and_loss_scale() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 10), torch.randn(6, 4)
    expected = rm.example_gradient_norms(model, x, TARGETS)
    with norms_in_flight(model, "sum", loss_scale=8.0) as norms:
        (8 * F.cross_entropy(model(x), TARGETS, reduction="sum")).backward()
    torch.testing.assert_close(norms.values, expected)
    assert set(norms.by_parameter) == {"weight", "bias"}


def test_misuse_is_told() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 10)), torch.randn(6, 4)
    with norms_in_flight(model) as norms:
        loss = F.cross_entropy(model(x), TARGETS)
        with pytest.raises(InputError, match=r"call loss\.backward"):
            _ = norms.values
        with pytest.raises(InputError, match="run once"):
            model(x)
        loss.backward()
    assert norms.values.shape == (6,)
    with pytest.raises(InputError, match="BatchNorm"), norms_in_flight(resnet18(4)):
        pass
    with pytest.raises(InputError, match="`reduction`"), norms_in_flight(model, "median"):  # type: ignore[arg-type]
        pass
