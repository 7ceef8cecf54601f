"""Against Opacus and BackPACK where they can run and are right, and against the loop where they are not."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.gradients.example_loop import loop_squared_norms
from remanence.losses import cross_entropy

TARGETS = torch.randint(0, 10, (6,), generator=torch.Generator().manual_seed(1))


def convolutional() -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(3, 8, 3, 2, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 10)), torch.randn(6, 3, 8, 8)


def recurrent_free() -> tuple[nn.Module, Tensor]:
    layers = [
        nn.Embedding(20, 8),
        nn.LayerNorm(8),
        nn.Linear(8, 8),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(40, 10),
    ]
    return nn.Sequential(*layers), torch.randint(0, 20, (6, 5))


def plain() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 10)), torch.randn(6, 12)


def norms_of_rows(parameters: Any) -> Tensor:
    return torch.stack([rows.flatten(1).square().sum(1) for rows in parameters]).sum(0).sqrt()


@pytest.mark.parametrize("build", [convolutional, recurrent_free, plain])
@pytest.mark.parametrize("ghost", [False, True], ids=["hooks", "ghost"])
def test_opacus_agrees(build: Any, ghost: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    torch.manual_seed(0)
    model, x = build()
    expected = rm.example_gradient_norms(model, x, TARGETS)
    model.train()  # Opacus takes no gradients in evaluation mode; nothing here depends on the mode
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if ghost:
            wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
        else:
            wrapped = GradSampleModule(model)
        # Opacus multiplies by the batch size for a mean
        nn.functional.cross_entropy(wrapped(x), TARGETS).backward()
        found = (
            wrapped.get_norm_sample() if ghost else norms_of_rows(p.grad_sample for p in model.parameters())
        )
    torch.testing.assert_close(expected, found.detach(), rtol=1e-5, atol=1e-6)


needs_backpack = pytest.mark.skipif(
    importlib.util.find_spec("backpack") is None,
    reason="BackPACK is not installed; `make peers` adds it without its pins on other packages",
)


def backpack_norms(model: nn.Module, x: Tensor) -> Tensor:
    from backpack import backpack, extend
    from backpack.extensions import BatchL2Grad

    model = extend(model)
    loss = extend(nn.CrossEntropyLoss(reduction="sum"))
    with warnings.catch_warnings(), backpack(BatchL2Grad()):
        warnings.simplefilter("ignore")
        loss(model(x), TARGETS).backward()
    return torch.stack([p.batch_l2 for p in model.parameters()]).sum(0).sqrt()


@needs_backpack
@pytest.mark.parametrize("build", [plain])
def test_backpack_agrees(build: Any) -> None:
    torch.manual_seed(0)
    model, x = build()
    expected = rm.example_gradient_norms(model, x, TARGETS)
    torch.testing.assert_close(expected, backpack_norms(model, x), rtol=1e-5, atol=1e-6)


class Token(nn.Module):
    """Parameters outside layers: what peers that hook layers do not see."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        out: Tensor = self.head(torch.tanh(self.body(h))[:, 0])
        return out


def tied() -> tuple[nn.Module, Tensor]:
    first, second = nn.Linear(9, 9), nn.Linear(9, 9)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(9, 10)), torch.randn(6, 9)


def batch_norm() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    nn.init.uniform_(model[1].running_mean)
    return model, torch.randn(6, 3, 8, 8)


@pytest.mark.parametrize("build", [tied, batch_norm, lambda: (Token(), torch.randn(6, 4, 8))])
def test_right_where_peers_are_silently_wrong(build: Any) -> None:
    torch.manual_seed(0)
    model, x = build()
    found = rm.example_gradient_norms(model, x, TARGETS)
    rows = loop_squared_norms(model.eval(), x, TARGETS, cross_entropy, dict(model.named_parameters()))
    expected = torch.stack(list(rows.values())).sum(0).sqrt().float()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@needs_backpack
def test_backpack_is_off_on_tied_weights() -> None:
    """If this fails, BackPACK has learnt it, and it may join the peers that are right."""
    torch.manual_seed(0)
    model, x = tied()
    expected = rm.example_gradient_norms(model, x, TARGETS)
    assert ((backpack_norms(model, x) / expected - 1).abs() > 0.01).any()
