"""What has no per-example gradients is refused in one sentence; it never comes out as 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import remanence as rm
from remanence.errors import InputError
from remanence.gradients import FallbackWarning, example_gradients_gram, norms_in_flight
from remanence.gradients.coupling import _differ

X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6)


def in_flight(model: nn.Module) -> None:
    with norms_in_flight(model) as norms:
        F.cross_entropy(model(X), Y).backward()
    _ = norms.values


DOORS: dict[str, Callable[[nn.Module], object]] = {
    "examples": lambda model: rm.example_gradient_norms(model, X, Y),
    "one example": lambda model: rm.example_gradient_norms(model, X[:1], Y[:1]),
    "data set": lambda model: rm.dataset_gradient_norms(model, TensorDataset(X, Y)),
    "Gram matrix": lambda model: example_gradients_gram(model, X, Y),
    "in flight": in_flight,
}


class Unrecorded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            out: Tensor = self.layer(x)
        return out


@pytest.mark.parametrize("door", DOORS)
def test_inference_mode_is_refused(door: str) -> None:
    with torch.inference_mode(), pytest.raises(InputError, match="inference_mode"):
        DOORS[door](nn.Linear(4, 10))


@pytest.mark.parametrize("door", DOORS)
def test_a_forward_pass_without_gradients_is_refused(door: str) -> None:
    with pytest.raises(InputError, match=r"requires no gradient.*torch\.no_grad"):
        DOORS[door](Unrecorded())


class Similar(nn.Module):
    """Similarities of all pairs of a batch, over a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.temperature = nn.Linear(4, 5), nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        z = F.normalize(self.layer(x), dim=1)
        return z @ z.T / self.temperature


def among_all(out: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(out, torch.arange(len(out)), reduction="none")


@pytest.mark.parametrize(
    "dtype",
    [None, torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.half("bfloat16"))],
    ids=str,
)
def test_a_contrastive_loss_with_a_learned_temperature_is_refused(dtype: torch.dtype | None) -> None:
    torch.manual_seed(0)
    with pytest.raises(InputError, match="mixes the examples"):
        rm.example_gradient_norms(Similar(), X, Y, loss=among_all, dtype=dtype)


def test_weak_coupling_is_refused_too() -> None:
    class Centred(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - 0.05 * x.mean(0, keepdim=True)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), Centred(), nn.Linear(6, 10))
    with pytest.raises(InputError, match="; 1 mixes"):
        rm.example_gradient_norms(model, X, Y)


def test_another_course_without_coupling_is_left_to_the_loop_even_if_fitted() -> None:
    """A fitted example's gradient is rounding errors, which differ between a batch and one example."""

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 10)

        def forward(self, x: Tensor) -> Tensor:
            for row in x:
                x = x + 0 * row.sum()
            out: Tensor = self.layer(x)
            return out

    torch.manual_seed(0)
    model = Rows()
    with torch.no_grad():
        model.layer.weight.mul_(30)
    fitted = model(X).argmax(1)
    with pytest.warns(FallbackWarning, match="from the loop"):
        norms = rm.example_gradient_norms(model, X, fitted)
    assert norms.isfinite().all()


def test_a_module_that_gives_nan_in_company_only_is_seen() -> None:
    lone = torch.tensor([[1.0, -torch.inf]])
    whole = lone.repeat(3, 1)
    assert not _differ(whole, lone, 1, 3, 1e-3)
    whole[1, 0] = torch.nan
    assert _differ(whole, lone, 1, 3, 1e-3)
    assert not _differ(whole, torch.tensor([[torch.nan, -torch.inf]]), 1, 3, 1e-3)


def test_complex_parameters_are_refused() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = nn.Parameter(torch.randn(4, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.turn).abs()

    with pytest.raises(InputError, match="`turn` is complex"):
        rm.example_gradient_norms(Turned(), X, Y % 4)


def test_targets_may_be_a_list_or_an_array() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 10)
    expected = rm.example_gradient_norms(model, X, Y)
    assert torch.equal(rm.example_gradient_norms(model, X, Y.tolist()), expected)
    assert torch.equal(rm.example_gradient_norms(model, X, Y.numpy()), expected)
    spread = np.random.default_rng(0).normal(size=(6, 10))
    found = rm.example_gradient_norms(model, X, spread, loss="squared_error")
    right = rm.example_gradient_norms(model, X, torch.tensor(spread).float(), loss="squared_error")
    assert torch.equal(found, right)
    torch.testing.assert_close(
        example_gradients_gram(model, X, Y.tolist()).diagonal(), expected.square(), rtol=1e-5, atol=0
    )
    with pytest.raises(InputError, match="`targets` must be tensors or numbers"):
        rm.example_gradient_norms(model, X, list("abcdef"))
    with pytest.raises(InputError, match="`targets` must have one row per example, 6"):
        example_gradients_gram(model, X, Y[:3])


def test_every_name_of_a_tied_weight_names_it() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.second(torch.tanh(self.first(x)))
            return out

    torch.manual_seed(0)
    model = Tied()
    rows = rm.example_gradient_norms(model, X, Y % 4, by_parameter=True)
    for name in ("first.weight", "second.weight"):
        found = rm.example_gradient_norms(model, X, Y % 4, parameters=[name])
        torch.testing.assert_close(found, rows["first.weight"])


def test_sparse_embeddings_have_norms() -> None:
    torch.manual_seed(0)
    words = torch.randint(0, 9, (6, 3))
    body = nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 10)
    expected = rm.example_gradient_norms(nn.Sequential(*body), words, Y)
    body[0].sparse = True
    torch.testing.assert_close(rm.example_gradient_norms(nn.Sequential(*body), words, Y), expected)
    gram = example_gradients_gram(nn.Sequential(*body), words[:1], Y[:1])
    torch.testing.assert_close(gram[0], expected[:1].square())
