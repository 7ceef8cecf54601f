"""The contract of a rule: what the how-to page promises a newcomer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import remanence as rm
from remanence.gradients.layout import Layout, find_layout, sampled, settle_order
from remanence.gradients.rules import RULE_OF, RULES
from remanence.gradients.use import Rule, Use


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

        def gradients(self, use: Use, roles: tuple[str, ...], start: int, stop: int) -> dict[str, Tensor]:
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


def test_layouts_split_and_join() -> None:
    tensor = torch.arange(24).view(2, 12)
    for layout in (Layout(1), Layout(1, major=False)):
        parts = layout.split(tensor, 3)
        assert parts.shape == (3, 2, 4)
        assert torch.equal(layout.join(parts), tensor)
    assert find_layout((1, 4), (1, 4), 3) is None
    assert find_layout((2, 4), (2, 12), 3) == Layout(1)
    one, many = torch.randn(4, 2), torch.randn(12, 2)
    many[0::3] = one
    assert settle_order(Layout(0), sampled(one), many, 3) == Layout(0, major=False)
