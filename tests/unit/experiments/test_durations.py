"""Times to unlearn, of which some are censored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

import remanence as rm
from remanence.experiments import (
    Duration,
    duration_interval,
    half_gap_time,
    settled_time,
    summarize,
    time_to_unlearn,
)


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


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 0.0, 0.5, 0.5], Duration(3, True)),
        ([0.0, 0.5, 0.5, 0.5, 0.0], Duration(4, False)),
        ([0.5, 0.45, 0.55], Duration(0, True)),
        ([0.0, 0.0, 0.5], Duration(2, True)),
    ],
)
def test_settled_means_close_until_the_end(values: list[float], expected: Duration) -> None:
    assert settled_time(range(len(values)), values, 0.5) == expected


@pytest.mark.parametrize(
    ("values", "oracle", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.1], 0.5, Duration(2, True)),
        ([0.1, 0.2, 0.2], 0.5, Duration(2, False)),
        ([0.9, 0.8, 0.6], 0.5, Duration(2, True)),  # from above
        ([0.1, 0.9], 0.5, Duration(1, True)),  # past the oracle, half of the gap was closed on the way
        ([0.5, 0.9], 0.5, Duration(0, True)),  # no gap
    ],
)
def test_half_of_the_own_gap(values: list[float], oracle: float, expected: Duration) -> None:
    assert half_gap_time(range(len(values)), values, oracle) == expected


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


def test_the_interval_of_a_mean_time() -> None:
    assert duration_interval([Duration(3, True)], resolution=1) is None
    assert duration_interval([Duration(3, True)] * 5, resolution=1) == (2, 4)
    assert duration_interval([Duration(0.5, True)] * 5, resolution=1) == (0, 1.5)
    assert duration_interval([Duration(30, False)] * 5, resolution=1) == (29, None)
    times = [4.0, 6.0, 9.0, 5.0, 7.0]
    low, high = duration_interval([Duration(time, True) for time in times], resolution=1)
    expected = ttest_1samp(times, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high))
    some = [Duration(time, time < 9) for time in times]
    assert duration_interval(some, resolution=1) == (pytest.approx(expected.low), None), "open above"
