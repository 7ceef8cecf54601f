"""Single calls of `example_gradient_norms`: what was learned about a model is kept, until the model changes."""

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.gradients.example_loop import loop_squared_norms
from remanence.gradients.norm_engine import NormEngine
from remanence.losses import cross_entropy

LABELS = torch.arange(6) % 3


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every example that is recorded."""
    kept: list[int] = []
    original = NormEngine._record

    def watched(self: NormEngine, *args: Any) -> Any:
        kept.append(1)
        return original(self, *args)

    monkeypatch.setattr(NormEngine, "_record", watched)
    return kept


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def inputs(seed: int = 0) -> Tensor:
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(seed))


def by_loop(model: nn.Module, x: Tensor, loss: Callable[..., Tensor] = cross_entropy) -> Tensor:
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    table = loop_squared_norms(model, inputs=x, targets=LABELS, loss=loss, parameters=parameters)
    return torch.stack(list(table.values())).sum(0).sqrt().float()


def test_later_calls_record_nothing_and_are_exact_after_a_step(recorded: list[int]) -> None:
    model = network()
    for seed in range(3):
        x = inputs(seed)
        norms = rm.example_gradient_norms(model, x, LABELS)
        assert torch.allclose(norms, by_loop(model, x), rtol=1e-5)
        with torch.no_grad():
            model[0].weight.add_(0.1)
    assert len(recorded) == 1
    rm.example_gradient_norms(model, inputs()[:, None].expand(6, 2, 5).flatten(0, 1), LABELS.repeat(2))
    assert len(recorded) == 1, "the number of examples does not matter"


@pytest.mark.parametrize("change", ["frozen", "replaced layer", "loss", "parameters"])
def test_a_change_is_seen(recorded: list[int], change: str) -> None:
    model, x, options = network(), inputs(), {}
    rm.example_gradient_norms(model, x, LABELS)
    if change == "frozen":
        model[0].weight.requires_grad_(False)
    elif change == "replaced layer":
        model[2] = nn.Linear(4, 3)
    elif change == "loss":
        options["loss"] = lambda outputs, targets: 2 * cross_entropy(outputs, targets)
    else:
        options["parameters"] = ["0.weight"]
    norms = rm.example_gradient_norms(model, x, LABELS, **options)
    assert len(recorded) == 2
    if change == "parameters":
        assert (norms < by_loop(model, x)).all()
    else:
        assert torch.allclose(norms, by_loop(model, x, options.get("loss", cross_entropy)), rtol=1e-5)


class Switching(nn.Module):
    """Runs other calls after a switch that no signature can see."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.deep = nn.Linear(5, 5), nn.Linear(5, 3), False

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        return self.last(self.first(hidden).tanh() if self.deep else hidden)


def test_other_calls_are_recorded_anew_without_falling_back_to_the_loop(recorded: list[int]) -> None:
    model, x = Switching(), inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for deep in (False, True, False):
            model.deep = deep
            assert torch.allclose(rm.example_gradient_norms(model, x, LABELS), by_loop(model, x), rtol=1e-5)
    assert len(recorded) == 3


def test_a_model_is_not_kept_alive() -> None:
    model = network()
    rm.example_gradient_norms(
        model, inputs(), LABELS, loss=lambda outputs, targets, m=model: cross_entropy(outputs, targets)
    )
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_two_threads_with_one_model() -> None:
    model, wrong = network(), []
    expected = [by_loop(model, inputs(seed)) for seed in range(4)]

    def work(offset: int) -> None:
        for i in range(40):
            seed = (i + offset) % 4
            norms = rm.example_gradient_norms(model, inputs(seed), LABELS)
            if not torch.allclose(norms, expected[seed], rtol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in (0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert model.training
