"""The fast path against the loop of batch size one, over small architectures of drawn sizes."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from remanence import example_gradient_norms
from remanence.batches import placed
from remanence.gradients import FallbackWarning, example_gradients_gram
from remanence.gradients.example_loop import loop_squared_norms
from remanence.losses import cross_entropy

sys.path.insert(0, str(Path(__file__).parent))
from architectures import CLASSES, FAST, SLOW, Draw, N

LIMIT = {torch.float32: 1e-5, torch.float64: 1e-10}
quick = settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def built(build: Any, data: st.DataObject, dtype: torch.dtype) -> tuple[torch.nn.Module, Any, Tensor]:
    torch.manual_seed(0)
    draw: Draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    model, inputs = build(draw)
    targets = torch.randint(0, CLASSES, (N,))
    if any(isinstance(p, torch.nn.parameter.UninitializedParameter) for p in model.parameters()):
        model(inputs)
    model = model.to(dtype).eval()
    return model, placed(inputs, model, dtype), targets


def truth(model: torch.nn.Module, inputs: Any, targets: Tensor) -> dict[str, Tensor]:
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return loop_squared_norms(model, inputs, targets, cross_entropy, parameters)


def check(model: torch.nn.Module, inputs: Any, targets: Tensor, limit: float) -> None:
    expected = truth(model, inputs, targets)
    total = torch.stack(list(expected.values())).sum(0).sqrt()
    found = example_gradient_norms(model, inputs, targets).double()
    assert ((found - total).abs() <= limit * total).all()
    rows = example_gradient_norms(model, inputs, targets, by_parameter=True)
    for name, row in rows.items():
        assert ((row.double() - expected[name].sqrt()).abs() <= 10 * limit * total).all(), name


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_rules_agree_with_the_loop_in_silence(name: str, dtype: torch.dtype) -> None:
    @quick
    @given(st.data())
    def run(data: st.DataObject) -> None:
        problem = built(FAST[name], data, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, such as on padding="same" with an even kernel
            warnings.simplefilter("error", FallbackWarning)
            check(*problem, LIMIT[dtype])

    run()


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_fallbacks_agree_with_the_loop_and_say_so(name: str, dtype: torch.dtype) -> None:
    @quick
    @given(st.data())
    def run(data: st.DataObject) -> None:
        problem = built(SLOW[name], data, dtype)
        with pytest.warns(FallbackWarning):
            check(*problem, LIMIT[dtype])

    run()


@pytest.mark.parametrize("name", ["conv2d", "vision", "gpt2", "reused", "weight_norm", "broadcast"])
def test_gram_matrix_is_that_of_the_loops_gradients(name: str) -> None:
    @quick
    @given(st.data())
    def run(data: st.DataObject) -> None:
        model, inputs, targets = built(FAST[name], data, torch.float64)
        parameters = [p for p in model.parameters() if p.requires_grad]
        rows = []
        for i in range(N):
            loss = cross_entropy(model(inputs[i : i + 1]), targets[i : i + 1]).sum()
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            rows.append(torch.cat([g.flatten() for g in gradients if g is not None]))
        expected = torch.stack(rows) @ torch.stack(rows).T
        found = example_gradients_gram(model, inputs, targets)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)

    run()
