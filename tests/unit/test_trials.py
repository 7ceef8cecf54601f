import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import remanence as rm
from remanence.data import Split, digits
from remanence.models import small_conv
from remanence.training import Recipe
from remanence.trials import (
    Duration,
    LearningRateTrial,
    choose_learning_rate,
    run_trial,
    summarize,
    time_to_unlearn,
)
from remanence.unlearning import Finetune


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 0.5, 0.5], Duration(0, True)),
        ([0.0, 0.5, 0.5], Duration(1, True)),
        ([0.0, 0.5, 0.0, 0.5, 0.5], Duration(3, True)),
        ([0.0, 0.5, 0.0, 0.5], Duration(3, False)),
        ([1.0, 1.0, 1.0], Duration(2, False)),  # forgotten more than the oracle is not forgotten well
        ([0.45, 0.55, 0.0], Duration(0, True)),  # exactly five points off counts as close
    ],
)
def test_time_to_unlearn(values: list[float], expected: Duration) -> None:
    assert time_to_unlearn(range(len(values)), values, 0.5) == expected


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.floats(0, 1), st.integers(1, 2))
def test_time_to_unlearn_agrees_with_its_definition(values: list[float], oracle: float, stay: int) -> None:
    found = time_to_unlearn(range(len(values)), values, oracle, stay=stay)
    close = [abs(value - oracle) <= 0.05 + 1e-9 for value in values]
    starts = [i for i in range(len(values) - stay + 1) if all(close[i : i + stay])]
    assert found == (Duration(starts[0], True) if starts else Duration(len(values) - 1, False))


def test_censored_seeds_count_as_a_lower_bound() -> None:
    found = summarize([Duration(2, True), Duration(30, False)])
    assert (found.mean, found.reached, found.seeds) == (16.0, 1, 2)
    assert found.sd == pytest.approx(np.std([2, 30], ddof=1))
    assert summarize([Duration(2, True)]).sd == 0.0


def test_mismatched_curves_are_refused() -> None:
    with pytest.raises(rm.InputError, match="equally many"):
        time_to_unlearn([0, 1], [0.5], 0.5)


def test_the_learning_rate_nearest_the_oracle_wins_from_either_side() -> None:
    oracle = {"mia": 0.5}
    trials = [
        LearningRateTrial(0.1, {"mia": [0.4, 0.5]}, oracle),
        LearningRateTrial(0.01, {"mia": [0.1, 0.2]}, oracle),
        LearningRateTrial(1.0, {"mia": [1.0, 1.0]}, oracle),
    ]
    choice, table = choose_learning_rate(trials)
    assert choice == 0.1
    assert table == pytest.approx({"0.01": 0.35, "0.1": 0.05, "1.0": 0.5})


def test_of_learning_rates_that_do_equally_well_the_gentlest_wins() -> None:
    trials = [
        LearningRateTrial(rate, {"mia": [0.5 - gap]}, {"mia": 0.5})
        for rate, gap in ((0.1, 0.104), (0.2, 0.1))
    ]
    assert choose_learning_rate(trials)[0] == 0.1
    trials[0] = LearningRateTrial(0.1, {"mia": [0.39]}, {"mia": 0.5})
    assert choose_learning_rate(trials)[0] == 0.2


def test_a_trial_works_on_a_copy_and_is_its_seed() -> None:
    train, test = digits()
    train = train.take(train.ids[:200])
    split = Split(train, test, rm.ForgetSet("f", train.ids[:20]))
    torch.manual_seed(0)
    model = small_conv(width=4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    method = Finetune(Recipe(epochs=2, learning_rate=0.05, batch_size=60))
    rows = run_trial(model, method, split, ("ua", "mia"), every=3, seed=1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [(row.metric, row.step) for row in rows] == [(m, s) for s in (0, 3, 6) for m in ("ua", "mia")]
    assert rows == run_trial(model, method, split, ("ua", "mia"), every=3, seed=1)


def test_finetuning_never_sees_the_forget_set() -> None:
    """Poisoned forget inputs must leave the result unchanged to the bit."""
    train, test = digits()
    train = train.take(train.ids[:100])
    forget = rm.ForgetSet("f", train.ids[:20])
    poisoned = train.inputs.clone()
    poisoned[:20] = float("nan")
    spoiled = type(train)(train.ids, poisoned, train.labels, train.class_names)
    results = []
    for data in (train, spoiled):
        torch.manual_seed(0)
        model = small_conv(width=4)
        recipe = Recipe(epochs=1, learning_rate=0.05, batch_size=40)
        for _ in Finetune(recipe)(model, Split(data, test, forget), seed=3):
            pass
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*results)
