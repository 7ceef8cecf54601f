"""The membership attack: what it can tell, and what it must not pretend to tell."""

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.audit import METRICS, evaluate
from remanence.audit.membership import SIGNALS
from remanence.audit.membership_attack import membership_attack
from remanence.data import Examples, Split


def examples(n: int, seed: int, features: int = 40) -> Examples:
    """Inputs without structure and labels at random: all that can be learned is by heart."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, features, generator=draw)
    labels = torch.randint(10, (n,), generator=draw)
    return Examples(np.arange(n) + 100_000 * seed, inputs, labels, tuple("0123456789"))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 512), nn.ReLU(), nn.Linear(512, 10))


@pytest.mark.parametrize("metric", SIGNALS)
def test_one_split_gives_nothing_away(metric: str) -> None:
    """Retain and test examples of one distribution, and a model that was trained on neither."""
    everyone, test = examples(2600, 1), examples(2500, 2)
    split = Split(everyone, test, rm.ForgetSet("f", everyone.ids[:100]))
    model = network()
    found = evaluate(model, split)
    assert METRICS[f"{metric}_accuracy"](found) == pytest.approx(0.5, abs=0.03)


def test_a_network_that_learned_by_heart_gives_itself_away() -> None:
    train, test = examples(700, 1), examples(600, 2)
    split = Split(train, test, rm.ForgetSet("f", train.ids[:100]))
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train.inputs), train.labels).backward()
        optimizer.step()
    found = evaluate(model, split)
    assert METRICS["ra"](found) > 0.99
    for metric in SIGNALS:
        assert METRICS[f"{metric}_accuracy"](found) > 0.8, metric
        assert METRICS[metric](found) < 0.2, metric  # the forget set was learned by heart too


def test_the_attacker_is_never_asked_about_its_own_examples() -> None:
    """With as many folds as examples and nothing to tell, an attacker that peeked would be right too often."""
    draw = np.random.default_rng(0)
    same = draw.normal(size=(2, 40))
    assert membership_attack(same[0], same[1], same[0], folds=40).accuracy < 0.65


def test_numbers_are_balanced_and_the_same_twice() -> None:
    draw = np.random.default_rng(3)
    members, outsiders, targets = draw.uniform(size=5000), draw.uniform(size=300), draw.uniform(size=500)
    first = membership_attack(members, outsiders, targets)
    assert first == membership_attack(members, outsiders, targets)
    assert first.accuracy == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_extreme_signals_do_not_break_the_fit(scale: float) -> None:
    members, outsiders = np.full(50, 1.0) * scale, np.full(50, -1.0) * scale
    found = membership_attack(members, outsiders, np.array([2.0, -2.0]) * scale)
    assert found.called_outsider == 0.5
    assert found.accuracy == 1.0


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(rm.InputError, match="needs two retain and two test"):
        membership_attack(np.ones(1), np.ones(5), np.ones(2))
    with pytest.raises(rm.InputError, match="at least one target"):
        membership_attack(np.ones(5), np.ones(5), np.ones(0))
