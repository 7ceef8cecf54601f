"""The contract of a rule: what the how-to page promises a newcomer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import remanence as rm
from remanence.gradients import norms_in_flight
from remanence.gradients.example_loop import loop_squared_norms
from remanence.gradients.layers import RULE_OF, RULES
from remanence.gradients.layers.rule import SUM_LENGTH, ParameterUse, Rule, square_sum
from remanence.gradients.layout import Layout, find_layout, sampled, settle_order
from remanence.losses import cross_entropy


def test_every_rule_names_its_functions_once() -> None:
    functions = [function for rule in RULES for function in rule.functions]
    assert len(functions) == len(set(functions)) == len(RULE_OF)
    assert all(rule.functions and rule.roles for rule in RULES)


def test_a_rule_needs_no_more_than_bind_and_gradients() -> None:
    class Maximum(Rule):
        """Squared norms are left to the base class."""

        functions = (torch.maximum,)
        roles = ("right",)

        def bind(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"input": left, "right": right}

        def gradients(
            self, use: ParameterUse, roles: tuple[str, ...], start: int, stop: int
        ) -> dict[str, Tensor]:
            x, g = use.split(use.input)[start:stop], use.split(use.grad)[start:stop]
            return {"right": (g * (x < use.args["right"])).flatten(1, -2).sum(1)}

    class Floor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.least = nn.Parameter(torch.randn(10))

        def forward(self, x: Tensor) -> Tensor:
            return torch.maximum(x, self.least)

    x, y = torch.randn(6, 10), torch.arange(6)
    RULE_OF[torch.maximum] = Maximum()
    try:
        found = rm.example_gradient_norms(Floor(), x, y)  # a FallbackWarning would be an error here
    finally:
        del RULE_OF[torch.maximum]
    assert found.shape == (6,)


def test_layouts_split_batches_into_examples() -> None:
    tensor = torch.arange(24).view(2, 12)
    for layout in (Layout(1), Layout(1, major=False)):
        parts = layout.split(tensor, 3)
        assert parts.shape == (3, 2, 4)
        columns = range(4) if layout.major else range(0, 12, 3)
        assert torch.equal(parts[0], tensor[:, list(columns)])
    assert find_layout((1, 4), (1, 4), 3) is None
    assert find_layout((2, 4), (2, 12), 3) == Layout(1)
    one, many = torch.randn(4, 2), torch.randn(12, 2)
    many[0::3] = one
    assert settle_order(Layout(0), sampled(one), many, 3) == Layout(0, major=False)


def test_squares_are_summed_to_the_last_digits() -> None:
    torch.manual_seed(0)
    for numel in (1, 100, SUM_LENGTH - 1, SUM_LENGTH, SUM_LENGTH + 1, 40 * SUM_LENGTH, 40 * SUM_LENGTH + 7):
        rows = torch.randn(3, numel)
        exact = rows.double().square().sum(1)
        torch.testing.assert_close(square_sum(rows).double(), exact, rtol=1e-6, atol=0)


def test_the_loop_is_what_backward_leaves_in_grad() -> None:
    class Odd(nn.Module):
        """Tied weights, a layer used twice, a parameter that plays no part."""

        def __init__(self) -> None:
            super().__init__()
            self.twice, self.idle = nn.Linear(6, 6), nn.Parameter(torch.ones(3))
            self.head = nn.Linear(6, 6)
            self.head.weight = self.twice.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(torch.tanh(self.twice(torch.tanh(self.twice(x)))))
            return out

    torch.manual_seed(0)
    model, x, y = Odd(), torch.randn(4, 6), torch.arange(4)
    found = loop_squared_norms(model, x, y, cross_entropy, dict(model.named_parameters()))
    for i in range(4):
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
        for name, parameter in model.named_parameters():
            expected = 0.0 if parameter.grad is None else float(parameter.grad.double().square().sum())
            assert float(found[name][i]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("share", [True, False, None])
def test_group_norm_with_channels_last_is_that_of_torch(share: bool | None) -> None:
    """Means far from 0, so that a sum that is not centered would lose digits; in a pass (None) and in flight."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.GroupNorm(2, 6)
    )
    model = nn.Sequential(model, nn.Flatten(), nn.Linear(6 * 36, 5)).double()
    with torch.no_grad():
        model[0][0].bias.fill_(50.0)
        model[0][1].weight.uniform_(0.5, 2.0)
    inputs, targets = torch.randn(5, 3, 8, 8, dtype=torch.float64), torch.arange(5)
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    plain = [torch.autograd.grad(F.cross_entropy(model(inputs[i : i + 1]), targets[i : i + 1]), [*model.parameters()])
             for i in range(5)]  # fmt: skip
    truth = torch.stack([torch.stack([g.square().sum() for g in row]).sum().sqrt() for row in plain])
    if share is None:
        torch.testing.assert_close(rm.example_gradient_norms(model, inputs, targets), truth)
        return
    for _ in range(2):  # work is shared from the second step on
        model.zero_grad()
        with norms_in_flight(model, share=share) as norms:
            F.cross_entropy(model(inputs), targets).backward()
    torch.testing.assert_close(norms.values, truth)
    for parameter, *rows in zip(model.parameters(), *plain, strict=True):
        torch.testing.assert_close(parameter.grad, torch.stack(rows).mean(0))
