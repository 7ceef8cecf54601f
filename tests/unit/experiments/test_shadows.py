"""Shadow models: who is in them, what they cost, and that they catch what was memorised."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

import remanence as rm
from remanence.audit import METRICS, Context, ShadowTable, evaluate
from remanence.audit.u_lira import attack_accuracy, likelihood_ratios
from remanence.data import Examples, Split, digits
from remanence.experiments import UnlearnSettings, unlearn_run
from remanence.experiments.shadows import (
    make_shadow,
    members,
    plan_shadows,
    read_shadows,
    shadow_stages,
)
from remanence.models import mlp
from remanence.stages import Store, run_stages
from remanence.tasks import Task
from remanence.training import Recipe, RunSettings, open_run, train_run, train_steps
from remanence.unlearning import Finetune

FULL, TEST = digits()
RECIPE = Recipe(20, 0.1, 32, weight_decay=0.0)


def task(split: Split, recipe: Recipe = RECIPE) -> Task:
    return Task(lambda: mlp(64, (64,)), split.train, split.test, recipe)


def shadow_table(split: Split, shadows: int) -> ShadowTable:
    """Shadows that are only trained, one after the other in this process."""
    rows = [make_shadow(task(split), split, index, seed=0) for index in range(shadows)]
    return ShadowTable(
        split.forget.ids, np.stack([inside for inside, _ in rows]), np.stack([signal for _, signal in rows])
    )


def planted() -> Split:
    """Three hundred digits; one of the forget set's labels is wrong, so that only memory gets it right."""
    train = FULL.take(FULL.ids[:300])
    labels = train.labels.clone()
    labels[0] = (labels[0] + 5) % 10
    wrong = Examples(train.ids, train.inputs, labels, train.class_names)
    return Split(wrong, TEST, rm.ForgetSet("planted", train.ids[:6]))


@pytest.fixture(scope="module")
def caught() -> tuple[Split, ShadowTable]:
    split = planted()
    return split, shadow_table(split, 8)


def test_a_memorised_example_tells_members_from_others(caught: tuple[Split, ShadowTable]) -> None:
    """Without unlearning, the attack must find the planted example in a model that has it, and only there."""
    split, table = caught
    ratios = {}
    for name, data in (("member", split.train), ("other", split.train.without(split.forget.ids[:1]))):
        model = task(split).new_model(99)
        for _ in train_steps(model, data, RECIPE, seed=99):
            pass
        seen = evaluate(model, split, Context(shadows=table))
        ratios[name] = likelihood_ratios(table, seen.forget.margin.numpy())[0]
        assert 0 <= METRICS["u_lira"](seen) <= 1
    assert ratios["member"] > 3
    assert ratios["other"] < -3


def test_the_planted_example_alone_is_told_for_certain(caught: tuple[Split, ShadowTable]) -> None:
    _, table = caught
    alone = ShadowTable(table.ids[:1], table.member[:, :1], table.signal[:, :1])
    assert attack_accuracy(alone).value == pytest.approx(1.0, abs=1e-3)


def test_halves_are_shared_by_pairs_and_repeat() -> None:
    split = planted()
    drawn = np.stack([members(split, index, seed=3) for index in range(8)])
    assert (drawn.sum(axis=0) == 4).all()
    assert (drawn.sum(axis=1) == 3).all()
    np.testing.assert_array_equal(drawn[0], members(split, 0, seed=3))
    assert len({row.tobytes() for row in drawn}) > 2


def test_a_shadow_is_unlearned_as_asked() -> None:
    split, short = planted(), Recipe(1, 0.1, 32)
    splits: list[Split] = []

    def unlearn(model: nn.Module, given: Split, seed: int) -> None:
        splits.append(given)
        for step in Finetune(short)(model, given, seed=seed):
            if step >= 4:
                return

    first, again = (make_shadow(task(split, short), split, 0, seed=0, unlearn=unlearn) for _ in range(2))
    assert set(splits[0].forget.ids) < set(split.forget.ids)
    assert set(splits[0].retain.ids) == set(split.retain.ids)
    np.testing.assert_array_equal(first[0], np.isin(split.forget.ids, splits[0].forget.ids))
    np.testing.assert_array_equal(first[1], again[1])
    only_trained = make_shadow(task(split, short), split, 0, seed=0)
    assert not np.array_equal(first[1], only_trained[1])
    other_seed = make_shadow(task(split, short), split, 0, seed=1)
    assert not np.array_equal(only_trained[1], other_seed[1])


def test_half_of_one_example_is_nobody() -> None:
    split = planted()
    alone = Split(split.train, split.test, rm.ForgetSet("one", split.train.ids[:1]))
    with pytest.raises(rm.InputError, match="at least two examples"):
        make_shadow(task(alone), alone, 0, seed=0)


def test_shadows_of_a_run_follow_its_unlearning(tmp_path: Path) -> None:
    """As stages in worker processes: trained as the run was, unlearned for as many steps, by the same method."""
    settings = RunSettings(
        "digits", "mlp", Recipe(1, 0.1), record=0, model_options={"hidden": [8]}, without=(int(FULL.ids[-1]),)
    )
    train_run(settings, tmp_path / "run")
    run, forget_set = open_run(tmp_path / "run"), rm.ForgetSet("some", FULL.ids[:6])
    unlearned = unlearn_run(run, forget_set, UnlearnSettings("finetune", steps=3), tmp_path / "unlearned")
    stages = shadow_stages(unlearned, forget_set, 4, seed=5)
    assert [(stage.method, stage.steps, stage.index) for stage in stages] == [
        ("finetune", 3, index) for index in range(4)
    ]
    assert stages[0].removed == (int(FULL.ids[-1]),), "the forget set itself is divided among the shadows"
    store = Store(tmp_path / "store")
    run_stages(stages, store, workers=1)
    table = read_shadows(store, stages)
    split = unlearned.split(forget_set)
    assert table.ids.tolist() == forget_set.ids.tolist()
    for stage, member in zip(stages, table.member, strict=True):
        np.testing.assert_array_equal(member, members(split, stage.index, seed=5))
    method, taken = Finetune(Recipe(**unlearned.unlearning["recipe"])), []

    def unlearn(model: nn.Module, given: Split, seed: int) -> None:
        for step in method(model, given, seed=seed):
            taken.append(step)
            if step == 3:
                return

    _, signal = make_shadow(unlearned.task, split, 0, seed=5, unlearn=unlearn)
    assert taken == [1, 2, 3]
    np.testing.assert_array_equal(table.signal[0], signal)
    only_trained = shadow_stages(run, forget_set, 4, seed=5)
    assert {stage.steps for stage in only_trained} == {0}
    assert {stage.key for stage in only_trained}.isdisjoint(stage.key for stage in stages)


def test_the_cost_is_known_up_front() -> None:
    split = planted()
    plan = plan_shadows(task(split), split, 40, shadows=10)
    assert (plan.shadows, plan.training_steps, plan.unlearning_steps) == (10, 200, 40)
    assert plan.steps == 2400
    sentence = "10 shadow models of 200 training and 40 unlearning steps each, 2,400 steps in total"
    assert sentence in plan.sentence()
    bought = plan_shadows(task(split), split, 40, budget=1e4)
    assert bought.shadows % 2 == 0
    assert bought.shadows > 10
    assert bought.seconds <= 1e4 * 1.001


def test_a_budget_that_buys_nothing_says_what_would() -> None:
    split = planted()
    with pytest.raises(rm.InputError, match=r"4 or more; got 0 \(4 of them take about \d+ seconds"):
        plan_shadows(task(split), split, 40, budget=1e-9)
    with pytest.raises(rm.InputError, match="even number"):
        plan_shadows(task(split), split, 40, shadows=7)
    with pytest.raises(rm.InputError, match="either the number"):
        plan_shadows(task(split), split, 40)
