"""Methods that draw weights anew: which ones, and what happens to the others."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.data import Split, digits
from remanence.models import small_conv, vit_small
from remanence.tasks import Recipe
from remanence.unlearning import METHODS, make_method
from remanence.unlearning.deletion_by_localization import _scores
from remanence.unlearning.new_weights import new_weights
from remanence.unlearning.set_gradient import set_gradient
from remanence.unlearning.units import chosen_rows, layers_with_units

RECIPE = Recipe(epochs=2, learning_rate=0.05, batch_size=20)
STILL: dict[str, Any] = {"learning_rate": 1e-30, "weight_decay": 0.0, "epochs": 1}
"""Hardly any learning rate: what a run changes is what the method resets."""


def split() -> Split:
    train, test = digits()
    train = train.take(train.ids[:90])
    return Split(train, test.take(test.ids[:20]), rm.ForgetSet("f", train.ids[5:30]))


def model() -> nn.Module:
    """No weight has the value with which it is drawn."""
    torch.manual_seed(0)
    net = small_conv(width=4)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.rand_like(parameter) + 0.01)
    return net


def reset_only(name: str, start: nn.Module, **options: Any) -> dict[str, Tensor]:
    """Parameters after the reset and one step that changes nothing."""
    changed = copy.deepcopy(start)
    next(make_method(name, STILL | options, RECIPE)(changed, split(), seed=1))
    return {key: value.detach() for key, value in changed.named_parameters()}


def differ(one: Tensor, other: Tensor) -> Tensor:
    """A bias of 0 moves by 1e-30 even so."""
    return (one - other).abs() > 1e-20


def test_reset_draws_the_channels_with_the_largest_scores_and_leaves_the_rest() -> None:
    start, data = model(), split()
    before, after = dict(start.named_parameters()), reset_only("reset", start, fraction=0.5)
    loss = nn.functional.cross_entropy(start(data.forget.inputs), data.forget.labels)
    gradients = dict(zip(before, torch.autograd.grad(loss, list(before.values())), strict=True))
    for name, parameter in before.items():
        if parameter.dim() == 4:
            changed = differ(after[name], parameter).flatten(1).any(dim=1)
            scores = (parameter * gradients[name]).abs().flatten(1).sum(dim=1)
            assert changed.sum() == len(scores) // 2
            assert scores[changed].min() >= scores[~changed].max()
        else:  # norms and the last layer
            assert not differ(after[name], parameter).any()


def test_the_new_weights_depend_on_the_seed_and_not_on_the_old_ones() -> None:
    one, two = model(), model()
    with torch.no_grad():
        for parameter in two.parameters():
            parameter.mul_(3)
    same = new_weights(one, 1), new_weights(two, 1)
    assert all(torch.equal(same[0][name], same[1][name]) for name in same[0])
    assert not torch.equal(new_weights(one, 2)["0.weight"], same[0]["0.weight"])
    made = new_weights(one, 1, make_model=lambda: small_conv(width=4))
    assert made.keys() == same[0].keys()


def test_heads_and_units_of_transformers() -> None:
    torch.manual_seed(0)
    layers = {layer.name: layer for layer in layers_with_units(vit_small(depth=1, dim=12, heads=3, image=8))}
    attention = layers["layers.0.attention"]
    assert attention.units == 3
    assert attention.rows["layers.0.attention.key.bias"].tolist() == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert layers["layers.0.widen"].units == 48
    assert "layers.0.attention.query" not in layers
    assert "head" not in layers
    assert "layers.0.attention.output" in layers


def test_heads_of_torchs_own_attention_are_reset_in_queries_keys_and_values() -> None:
    torch.manual_seed(0)
    net = nn.ModuleDict({"attention": nn.MultiheadAttention(4, 2), "head": nn.Linear(4, 2)})
    (attention, projection) = layers_with_units(net)
    assert attention.rows["attention.in_proj_weight"].tolist() == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    assert projection.name == "attention.out_proj"
    gradient = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    gradient["attention.in_proj_weight"][7] = 1  # a key of the second head
    rows = chosen_rows([attention], dict(net.named_parameters()), gradient, 0.5)
    assert rows["attention.in_proj_bias"].tolist() == [2, 3, 6, 7, 10, 11]


def test_the_only_layer_can_be_reset_too() -> None:
    assert [layer.name for layer in layers_with_units(nn.Linear(3, 4))] == [""]
    frozen = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.LayerNorm(4))
    with pytest.raises(
        rm.InputError, match=r"Expected a model .* got 0 \(Linear, not trainable\), 1 \(LayerNorm\)"
    ):
        layers_with_units(frozen)


def test_a_model_without_units_is_one_sentence_in_every_method() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(64, 10))

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1) @ self.w

    for name in ("reset", "msg", "del"):
        with pytest.raises(rm.InputError, match="Expected"):
            make_method(name, {}, RECIPE).begin(Bare(), split(), seed=0)
    with pytest.raises(rm.InputError, match=r"got the model \(Bare\)"):
        make_method("reset", {}, RECIPE).begin(Bare(), split(), seed=0)
    given = METHODS["shrink_perturb"](RECIPE, make_model=Bare)  # type: ignore[call-arg]
    assert next(given(Bare(), split(), seed=0)) == 1


def test_shrink_and_perturb_is_the_weighted_sum() -> None:
    start = model()
    new, after = new_weights(start, 1), reset_only("shrink_perturb", start, shrink=0.4, perturb=0.5)
    for name, parameter in start.named_parameters():
        torch.testing.assert_close(after[name], 0.4 * parameter.detach() + 0.5 * new[name])


def test_msg_draws_the_weights_with_the_smallest_gradients_and_slows_the_others() -> None:
    start, data = model(), split()
    method = make_method("msg", {"fraction": 0.25}, RECIPE)
    training = method.begin(copy.deepcopy(start), data, seed=1)
    masks = method._smallest(start, data, 1)  # type: ignore[attr-defined]
    assert [name for name, _ in start.named_parameters() if name in masks] == [
        "0.weight",
        "3.weight",
        "6.weight",
    ]
    assert all(int(mask.sum()) == round(0.25 * mask.numel()) for mask in masks.values())
    training.objective.before_first_step(training.parameters)
    for name, parameter in start.named_parameters():
        changed = training.parameters[name] != parameter
        assert torch.equal(changed, masks.get(name, torch.zeros_like(changed)))
    for parameter in training.parameters.values():
        parameter.grad = torch.ones_like(parameter)
    training.objective.change_gradients(training.parameters, 0)
    slowed = training.parameters["3.weight"].grad
    assert slowed is not None
    assert torch.equal(slowed, torch.where(masks["3.weight"], 1.0, 0.1))
    last = training.parameters["10.weight"].grad
    assert last is not None
    assert (last == 1).all()


def test_del_resets_whole_channels_and_trains_nothing_else_but_the_last_layer() -> None:
    start, data = model(), split()
    changed = copy.deepcopy(start)
    for _ in make_method("del", {"fraction": 0.3, "lr": 0.05, "epochs": 1}, RECIPE)(changed, data, seed=1):
        pass
    drawn = reset_only("del", start, fraction=0.3)
    resets = {name: differ(drawn[name], parameter) for name, parameter in start.named_parameters()}
    for name, parameter in start.named_parameters():
        if not name.startswith("10."):
            moved = dict(changed.named_parameters())[name] != parameter
            assert not (moved & ~resets[name]).any()
    gradient = set_gradient(start, data.forget)
    scores = torch.cat([_scores(p.detach() * gradient[n]).flatten() for n, p in start.named_parameters()])
    chosen = torch.cat([reset.flatten() for reset in resets.values()])
    assert chosen.sum() == round(0.3 * len(scores))
    assert scores[chosen].min() >= scores.sort(descending=True).values[round(0.3 * len(scores)) - 1]
    assert (changed[10].weight != start[10].weight).any(dim=1).all()


def test_del_scores_a_channel_by_its_largest_tenth() -> None:
    products = torch.arange(40.0).view(2, 20)
    assert _scores(products)[:, 0].tolist() == [18.5, 38.5]
    assert _scores(torch.tensor([1.0, -3.0])).tolist() == [3.0, 3.0]


def test_measurements_after_no_step_are_of_the_original_model(tmp_path: Path) -> None:
    from remanence.experiments import Evaluations, unlearn_and_measure

    start, data = model(), split()
    for name in ("reset", "shrink_perturb", "msg", "del"):
        training = make_method(name, {"epochs": 1}, RECIPE).begin(copy.deepcopy(start), data, seed=0)
        rows = unlearn_and_measure(training, Evaluations(data, ("test",), (0,), 0)).rows
        with torch.no_grad():
            right = (start(data.test.inputs).argmax(dim=1) == data.test.labels).float().mean().item()
        assert np.isclose(rows[0].value, right)
