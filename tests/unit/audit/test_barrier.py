"""Loss barriers of models that were really trained, with known answers."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.audit.barrier import Barrier, loss_barriers
from remanence.audit.permutations import match_permutations, permuted, trace_symmetry
from remanence.data import digits
from remanence.models import mlp, resnet18, vit_small

TRAIN, TEST = digits()
MODELS = {
    "resnet18 batch": (lambda: resnet18(8, "batch", in_channels=1), 3),
    "resnet18 group": (lambda: resnet18(8, "group", in_channels=1), 4),
    "vit": (lambda: vit_small(2, 32, 4, patch=2, image=8, in_channels=1), 8),
    "mlp": (lambda: mlp(64, (64, 64)), 5),
}


@functools.cache
def trained(name: str, seed: int = 0) -> nn.Module:
    make, epochs = MODELS[name]
    torch.manual_seed(seed)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(TRAIN)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(TRAIN.inputs[rows]), TRAIN.labels[rows]).backward()
            optimizer.step()
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_permuted_copy_is_far_away_and_matching_brings_it_back(name: str) -> None:
    model = trained(name)
    symmetry = trace_symmetry(model, TEST.inputs)
    copy = permuted(model, symmetry, symmetry.random(3)).eval()
    few = {"statistics": TRAIN.take(TRAIN.ids[:500]), "points": 9}
    with torch.no_grad():
        accuracy = (model(TEST.inputs).argmax(1) == TEST.labels).double().mean()
        aligned = match_permutations(model, copy, TEST.inputs).eval()
        off = (aligned(TEST.inputs) - model(TEST.inputs)).abs().max()
    assert accuracy > 0.8
    assert off < 1e-5
    assert rm.loss_barrier(model, copy, TEST, match="none", **few).value > 0.1  # type: ignore[arg-type]
    for match in ("weights", "activations"):
        assert rm.loss_barrier(model, copy, TEST, match=match, **few).value < 1e-4  # type: ignore[arg-type]


def test_matching_lowers_the_barrier_between_independent_models() -> None:
    one, other = trained("mlp", 0), trained("mlp", 1)
    before, after = (rm.loss_barrier(one, other, TEST, match=match) for match in ("none", "weights"))
    assert after.value < 0.7 * before.value


def test_the_curve_starts_and_ends_at_the_models_and_is_finest_around_its_top() -> None:
    one, other = trained("mlp", 0), trained("mlp", 1)
    found = rm.loss_barrier(one, other, TEST, match="none", points=25, rounds=3)
    with torch.no_grad():
        ends = [float(nn.functional.cross_entropy(each(TEST.inputs), TEST.labels)) for each in (one, other)]
    np.testing.assert_allclose(found.losses[[0, -1]], ends, rtol=1e-5)
    assert len(found.places) == 25 + 6
    assert found.rise[0] == found.rise[-1] == 0
    top = int(found.rise.argmax())
    np.testing.assert_allclose(np.diff(found.places)[[top - 1, top]], 1 / 24 / 8)
    brute = rm.loss_barrier(one, other, TEST, match="none", points=385, rounds=0)
    assert brute.value >= found.value - 1e-12
    assert brute.value - found.value < 1e-3 * brute.value


def test_a_barrier_is_the_rise_above_the_chord() -> None:
    places = np.linspace(0, 1, 5)
    tilted = Barrier(places, 1 + places)
    assert tilted.value == 0
    bump = Barrier(places, np.array([1.0, 1.5, 3.0, 2.0, 2.0]))
    assert bump.value == pytest.approx(1.5)
    assert bump.place == 0.5
    assert Barrier(places, np.array([1.0, 0.5, 0.2, 0.5, 1.0])).value == 0


def test_subsets_share_their_pieces() -> None:
    one, other = trained("mlp", 0), trained("mlp", 1)
    forget, retain = TRAIN.take(TRAIN.ids[:50]), TRAIN.take(TRAIN.ids[50:300])
    data = {"train": (forget, retain), "forget": forget, "retain": retain, "test": TEST}
    seen = []
    found = loss_barriers(
        one, other, data, points=5, rounds=0, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(i, 5) for i in range(1, 6)]
    mixed = (50 * found["forget"].losses + 250 * found["retain"].losses) / 300
    np.testing.assert_allclose(found["train"].losses, mixed)


def test_batch_statistics_are_those_of_the_model_in_between() -> None:
    """Half-way between a BatchNorm network and itself is itself: re-estimated, it says what training data say."""
    model = trained("resnet18 batch")
    statistics = TRAIN.take(TRAIN.ids[:256])
    found = rm.loss_barrier(model, model, TEST, statistics=statistics, points=3, rounds=0)
    by_hand = resnet18(8, "batch", in_channels=1)
    by_hand.load_state_dict(model.state_dict())
    for module in by_hand.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    with torch.no_grad():
        by_hand.train()(statistics.inputs)
        loss = nn.functional.cross_entropy(by_hand.eval()(TEST.inputs), TEST.labels)
    np.testing.assert_allclose(found.losses, float(loss), rtol=1e-4)
    assert found.value < 1e-6


@pytest.mark.parametrize(
    ("options", "words"),
    [({"points": 2}, "at least 3"), ({"match": "magic"}, "must be one of weights, activations, none")],
)
def test_bad_input(options: dict[str, object], words: str) -> None:
    with pytest.raises(rm.InputError, match=words):
        rm.loss_barrier(mlp(64, (4,)), mlp(64, (4,)), TEST, **options)  # type: ignore[arg-type]
    with pytest.raises(rm.InputError, match="same weights"):
        rm.loss_barrier(mlp(64, (4,)), mlp(64, (5,)), TEST)
