"""Half precision is for the forward pass: norms keep their digits, and infinity never becomes 0."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import remanence as rm
from remanence.errors import NumericalError
from remanence.gradients import example_gradients_gram, norms_in_flight
from remanence.gradients.layers.rule import square_sum
from remanence.gradients.norm_engine import NormEngine
from remanence.gradients.precision import Tolerance
from remanence.losses import cross_entropy


@pytest.fixture
def problem() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32),
        nn.LayerNorm(32),
        nn.Tanh(),
        nn.Linear(32, 32),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    return model, torch.randn(7, 4, 8), torch.arange(7)


@pytest.mark.parametrize(
    "half",
    [
        pytest.param(getattr(torch, name), marks=pytest.mark.half(name), id=name)
        for name in ("float16", "bfloat16")
    ],
)
@pytest.mark.parametrize("scale", [1e-20, 1e-9, 1e7, 1e15])
@pytest.mark.parametrize("batch_size", [1, 7])
def test_half_precision_is_left_where_its_range_ends(
    problem: tuple[nn.Module, Tensor, Tensor], half: torch.dtype, scale: float, batch_size: int
) -> None:
    model, x, y = problem
    plain = rm.example_gradient_norms(model, x, y)
    scaled = rm.example_gradient_norms(
        model, x, y, loss=lambda out, t: scale * cross_entropy(out, t), dtype=half, batch_size=batch_size
    )
    torch.testing.assert_close(scaled.double() / scale, plain.double(), rtol=0.05, atol=0)


def test_a_second_run_is_believed_with_care(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    engine = NormEngine(problem[0], cross_entropy, dict(problem[0].named_parameters()))
    before = torch.tensor([torch.inf, torch.inf, torch.nan, torch.nan, 2.0])
    after = torch.tensor([3.0, 0.0, 0.0, torch.nan, 0.0])
    assert engine._recovered(before, after, 2.0**-60).tolist() == [True, False, True, False, False]
    before, after = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([1e-30, torch.inf, 1.0])
    assert engine._recovered(before, after, 2.0**60).tolist() == [True, False, False]


@pytest.mark.half("float16")
def test_infinity_in_a_half_model_does_not_become_zero(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    model, x = model.half(), x.half()
    for huge in (2.0**17, 2.0**40):
        with pytest.raises(NumericalError, match="must be finite"):
            rm.example_gradient_norms(
                model, x, y, loss=lambda out, t, s=huge: s * cross_entropy(out.float(), t)
            )


@pytest.mark.half("float16")
def test_a_tiny_gradient_in_a_half_model_is_no_infinity(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    model, x = model.half(), x.half()
    norms = rm.example_gradient_norms(model, x, y, loss=lambda out, t: 1e-12 * cross_entropy(out.float(), t))
    assert norms.isfinite().all()


def test_a_truth_that_is_not_finite_agrees_with_nothing(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    engine = NormEngine(problem[0], cross_entropy, dict(problem[0].named_parameters()))
    engine.seen = set(engine.parameters)
    table = {name: torch.ones(1) for name in engine.parameters}
    tolerance = Tolerance.of(torch.float32)
    assert engine._close(table, 0, table, tolerance, 0.0)
    for value in (torch.inf, torch.nan):
        truth = {name: torch.full((1,), value) for name in engine.parameters}
        assert not engine._close(table, 0, truth, tolerance, 0.0)


def test_halves_are_squared_in_float32() -> None:
    rows = torch.tensor([[3e4, 4e4], [3e-5, 4e-5]]).half()
    found = square_sum(rows)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor([2.5e9, 2.5e-9]), rtol=5e-3, atol=0)


def plain(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Each example's own forward pass in bfloat16, its backward pass outside."""
    norms = []
    for i in range(len(x)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norms.append(torch.cat([gradient.flatten() for gradient in gradients]).norm())
    return torch.stack(norms)


@pytest.mark.half("bfloat16")
def test_products_of_norms_are_in_full_precision_under_the_callers_autocast() -> None:
    """One layer: its input and its output's gradient are the same to the bit, so only products could differ."""
    torch.manual_seed(0)
    model, x, y = (
        nn.Sequential(nn.Flatten(), nn.Linear(32, 10)),
        torch.randn(7, 4, 8).bfloat16().float(),
        torch.arange(7),
    )
    expected = rm.example_gradient_norms(model, x, y, dtype=torch.bfloat16)
    torch.testing.assert_close(expected, plain(model, x, y), rtol=1e-2, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        found = rm.example_gradient_norms(model, x, y)
        gram = example_gradients_gram(model, x, y)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gram.diagonal().sqrt(), expected, rtol=1e-5, atol=0)


@pytest.mark.half("bfloat16")
def test_the_callers_autocast_does_not_send_a_model_to_the_loop(
    problem: tuple[nn.Module, Tensor, Tensor],
) -> None:
    model, x, y = problem
    with torch.autocast("cpu", torch.bfloat16):
        found = rm.example_gradient_norms(model, x, y)  # a FallbackWarning would be an error here
    torch.testing.assert_close(found, plain(model, x, y), rtol=0.03, atol=0)


@pytest.mark.half("bfloat16")
@pytest.mark.parametrize("share", [True, False], ids=["share", "alone"])
def test_in_flight_a_backward_pass_under_autocast_keeps_the_norms_digits(share: bool) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 10)), torch.randn(7, 4, 8), torch.arange(7)

    def norms(around: bool) -> dict[str, Tensor]:
        with norms_in_flight(model, share=share) as found:
            loss = F.cross_entropy(model(x).mean(1), y)
            with torch.autocast("cpu", torch.bfloat16, enabled=around):
                loss.backward()
                rows = found.by_parameter
        return rows

    norms(around=False)  # from the second batch on work is shared
    expected, seen = norms(around=False), norms(around=True)
    for name in ("1.weight", "1.bias"):
        torch.testing.assert_close(seen[name], expected[name], rtol=1e-6, atol=0)
    for name in ("0.weight", "0.bias"):  # torch's own product on the way to them is in bfloat16
        torch.testing.assert_close(seen[name], expected[name], rtol=1e-2, atol=0)
