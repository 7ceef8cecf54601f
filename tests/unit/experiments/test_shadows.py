"""Shadow models: who is in them, what they cost, and that they catch what was memorised."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.audit import METRICS, Context, evaluate
from remanence.audit.u_lira import likelihood_ratios
from remanence.data import Examples, Split, digits
from remanence.models import mlp
from remanence.training import Recipe, train_steps
from remanence.trials.shadows import ShadowSetting, members, plan_shadows, shadow, shadow_table

FULL, TEST = digits()
RECIPE = Recipe(20, 0.1, 32, weight_decay=0.0)


def make(seed: int) -> nn.Module:
    torch.manual_seed(seed % 2**31)
    return mlp(64, (64,))


def finetune(model: nn.Module, split: Split, seed: int) -> Iterator[int]:
    return train_steps(model, split.retain, RECIPE, seed=seed)


def planted() -> Split:
    """Three hundred digits; one of the forget set's labels is wrong, so that only memory gets it right."""
    train = FULL.take(FULL.ids[:300])
    labels = train.labels.clone()
    labels[0] = (labels[0] + 5) % 10
    wrong = Examples(train.ids, train.inputs, labels, train.class_names)
    return Split(wrong, TEST, rm.ForgetSet("planted", train.ids[:6]))


@pytest.fixture(scope="module")
def caught() -> tuple[Split, ShadowSetting, object]:
    split = planted()
    setting = ShadowSetting(make, RECIPE, finetune, steps=0)
    return split, setting, shadow_table(setting, split, 8)


def test_a_memorised_example_tells_members_from_others(caught: tuple[Split, ShadowSetting, object]) -> None:
    """Without unlearning, the attack must find the planted example in a model that has it, and only there."""
    split, _, table = caught
    found = {}
    for name, data in (("member", split.train), ("other", split.train.without(split.forget.ids[:1]))):
        model = make(99)
        for _ in train_steps(model, data, RECIPE, seed=99):
            pass
        seen = evaluate(model, split, Context(shadows=table))  # type: ignore[arg-type]
        found[name] = likelihood_ratios(table, seen.forget.margin.numpy())[0]  # type: ignore[arg-type]
        assert 0 <= METRICS["u_lira"](seen) <= 1
    assert found["member"] > 3
    assert found["other"] < -3


def test_the_planted_example_alone_is_told_for_certain(caught: tuple[Split, ShadowSetting, object]) -> None:
    from remanence.audit import ShadowTable
    from remanence.audit.u_lira import attack_accuracy

    _, _, table = caught
    assert isinstance(table, ShadowTable)
    alone = ShadowTable(table.ids[:1], table.member[:, :1], table.signal[:, :1])
    assert attack_accuracy(alone) == 1.0


def test_halves_are_shared_by_pairs_and_repeat() -> None:
    split = planted()
    drawn = np.stack([members(split, index, seed=3) for index in range(8)])
    assert (drawn.sum(axis=0) == 4).all()
    assert (drawn.sum(axis=1) == 3).all()
    np.testing.assert_array_equal(drawn[0], members(split, 0, seed=3))
    assert len({row.tobytes() for row in drawn}) > 2


def test_a_shadow_is_unlearned_as_asked() -> None:
    split = planted()
    taken = []

    def watch(model: nn.Module, given: Split, seed: int) -> Iterator[int]:
        assert set(given.forget.ids) < set(split.forget.ids)
        assert set(given.retain.ids) == set(split.retain.ids)
        for step in finetune(model, given, seed):
            taken.append(step)
            yield step

    short = Recipe(1, 0.1, 32)
    first = shadow(ShadowSetting(make, short, watch, steps=4), split, 0)
    again = shadow(ShadowSetting(make, short, finetune, steps=4), split, 0)
    assert taken == [1, 2, 3, 4]
    np.testing.assert_array_equal(first[1], again[1])


def test_the_cost_is_known_up_front() -> None:
    split = planted()
    setting = ShadowSetting(make, RECIPE, finetune, steps=40)
    plan = plan_shadows(setting, split, shadows=10)
    assert (plan.shadows, plan.training_steps, plan.unlearning_steps) == (10, 200, 40)
    assert plan.steps == 2400
    assert (
        "10 shadow models of 200 training and 40 unlearning steps each, 2,400 steps in all" in plan.sentence()
    )
    bought = plan_shadows(setting, split, budget=1e4)
    assert bought.shadows % 2 == 0
    assert bought.shadows > 10
    assert bought.seconds <= 1e4 * 1.001


def test_a_budget_that_buys_nothing_says_what_would() -> None:
    setting = ShadowSetting(make, RECIPE, finetune, steps=40)
    with pytest.raises(rm.InputError, match=r"6 or more; got 0 \(6 of them take about \d+ seconds"):
        plan_shadows(setting, planted(), budget=1e-9)
    with pytest.raises(rm.InputError, match="even number"):
        plan_shadows(setting, planted(), shadows=7)
    with pytest.raises(rm.InputError, match="either the number"):
        plan_shadows(setting, planted())
