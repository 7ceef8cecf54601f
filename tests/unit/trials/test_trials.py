import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

import remanence as rm
from remanence.data import Split, digits
from remanence.models import small_conv
from remanence.training import Recipe
from remanence.trials import (
    Duration,
    LearningRateTrial,
    affordable_steps,
    choose_learning_rate,
    duration_interval,
    every_steps,
    run_trial,
    sampled,
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


def test_the_median_may_lie_beyond_the_time_given() -> None:
    assert summarize([Duration(2, True), Duration(4, True), Duration(30, False)]).median == 4
    assert summarize([Duration(2, True), Duration(30, False), Duration(30, False)]).median is None
    assert summarize([Duration(30, False)]).median is None


def test_mismatched_curves_are_refused() -> None:
    with pytest.raises(rm.InputError, match="equally many"):
        time_to_unlearn([0, 1], [0.5], 0.5)


def test_the_learning_rate_nearest_the_oracle_wins_from_either_side() -> None:
    oracle = {"mia": 0.5}
    trials = [
        LearningRateTrial(0.1, 0, {"mia": [0.4, 0.5]}, oracle),
        LearningRateTrial(0.01, 0, {"mia": [0.1, 0.2]}, oracle),
        LearningRateTrial(1.0, 0, {"mia": [1.0, 1.0]}, oracle),
    ]
    choice, table = choose_learning_rate(trials)
    assert choice == 0.1
    assert table == pytest.approx({"0.01": 0.35, "0.1": 0.05, "1.0": 0.5})


def test_of_learning_rates_that_do_equally_well_the_gentlest_wins() -> None:
    trials = [
        LearningRateTrial(rate, 0, {"mia": [0.5 - gap]}, {"mia": 0.5})
        for rate, gap in ((0.1, 0.104), (0.2, 0.1))
    ]
    assert choose_learning_rate(trials)[0] == 0.1
    trials[0] = LearningRateTrial(0.1, 0, {"mia": [0.39]}, {"mia": 0.5})
    assert choose_learning_rate(trials)[0] == 0.2


@pytest.mark.parametrize(
    ("small", "large", "choice"),
    [
        (
            [0.050, 0.020, 0.045, 0.035],
            [0.030, 0.035, 0.030, 0.030],
            0.1,
        ),  # 20 % worse, but not in every seed
        ([0.050, 0.047, 0.052, 0.050], [0.040, 0.038, 0.041, 0.040], 0.2),  # worse in every seed alike
        ([0.041, 0.039, 0.042, 0.041], [0.040, 0.038, 0.041, 0.040], 0.1),  # alike in every seed, within 5 %
        ([0.050], [0.040], 0.2),  # a single seed says nothing about chance
    ],
)
def test_a_rate_that_is_worse_by_chance_only_counts_as_equal(
    small: list[float], large: list[float], choice: float
) -> None:
    trials = [
        LearningRateTrial(rate, seed, {"mia": [0.5 - distance]}, {"mia": 0.5})
        for rate, distances in ((0.1, small), (0.2, large))
        for seed, distance in enumerate(distances)
    ]
    assert choose_learning_rate(trials)[0] == choice


def test_rates_are_compared_on_the_seeds_that_both_finished() -> None:
    """In a study a diverged run is left out."""
    trials = [
        LearningRateTrial(rate, seed, {"mia": [0.5 - distance]}, {"mia": 0.5})
        for rate, seed, distance in ((0.1, 0, 0.2), (0.1, 1, 0.05), (0.2, 1, 0.1))
    ]
    choice, table = choose_learning_rate(trials)
    assert table == pytest.approx({"0.1": 0.125, "0.2": 0.1})
    assert choice == 0.2


def test_the_interval_of_a_mean_time() -> None:
    assert duration_interval([Duration(3, True)], resolution=1) is None
    assert duration_interval([Duration(3, True)] * 5, resolution=1) == (2, 4)
    assert duration_interval([Duration(0.5, True)] * 5, resolution=1) == (0, 1.5)
    assert duration_interval([Duration(30, False)] * 5, resolution=1) == (29, None)
    times = [4.0, 6.0, 9.0, 5.0, 7.0]
    low, high = duration_interval([Duration(time, True) for time in times], resolution=1)
    expected = ttest_1samp(times, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high))


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


def test_a_trial_is_measured_where_and_on_what_was_asked() -> None:
    train, test = digits()
    train = train.take(train.ids[:200])
    split = Split(train, test, rm.ForgetSet("f", train.ids[:20]))
    watched = sampled(split, 30, seed=0)
    assert (len(watched.forget), len(watched.retain), len(watched.test)) == (20, 30, 30)
    assert np.isin(watched.retain.ids, split.retain.ids).all()
    assert watched.train.digest() == sampled(split, 30, seed=0).train.digest()
    assert watched.train.digest() != sampled(split, 30, seed=1).train.digest()
    whole = sampled(split, 10_000, seed=0)
    assert (len(whole.retain), len(whole.test)) == (180, len(test))
    torch.manual_seed(0)
    model, method = small_conv(width=4), Finetune(Recipe(epochs=2, learning_rate=0.05, batch_size=60))
    rows = run_trial(model, method, split, ("test",), at=[1, 2, 5], watched=watched, seed=1)
    assert [row.step for row in rows] == [0, 1, 2, 5]
    assert all(row.value * 30 == pytest.approx(round(row.value * 30)) for row in rows)
    # watching less does not change what is watched
    full = run_trial(model, method, split, ("ua",), at=[6], seed=1)
    part = run_trial(model, method, split, ("ua",), at=[1, 6], watched=watched, seed=1)
    assert full[-1] == part[-1]


@given(st.integers(1, 5000), st.integers(1, 256), st.integers(10, 60_000), st.integers(1, 60))
def test_watching_costs_no_more_than_training(steps: int, batch: int, watched: int, most: int) -> None:
    at = affordable_steps(steps, batch_size=batch, watched=watched, most=most)
    assert (at[0], at[-1]) == (0, steps)
    assert (np.diff(at) > 0).all()
    assert len(at) <= most + 1
    if len(at) > 2:  # the start and the end are measured in any case
        assert len(at) * watched <= 3 * batch * steps


def test_evaluations_are_dense_at_first() -> None:
    at = affordable_steps(1000, batch_size=64, watched=1000, most=20)
    assert at[:3].tolist() == [0, 1, 2]
    assert np.diff(at)[-1] > 100
    assert every_steps(10, 4).tolist() == [0, 4, 8, 10]
    with pytest.raises(rm.InputError, match="`every` must be at least 1"):
        every_steps(10, 0)
    with pytest.raises(rm.InputError, match="`sample` must be at least 1"):
        sampled(None, 0, 0)  # type: ignore[arg-type]


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
