"""The Kaplan–Meier estimate against published figures and scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import CensoredData, ecdf

import remanence as rm
from remanence.experiments import Duration, kaplan_meier

# Remission of leukaemia patients in weeks, the textbook example (Freireich et al., 1963); + is censored
TREATED = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+"
PLACEBO = "1 1 2 2 3 4 4 5 5 8 8 8 8 11 11 12 12 15 17 22 23"


def durations(text: str) -> list[Duration]:
    return [Duration(float(each.rstrip("+")), not each.endswith("+")) for each in text.split()]


def test_the_textbook_example() -> None:
    found = kaplan_meier(durations(TREATED))
    assert found.times.tolist() == [6, 7, 10, 13, 16, 22, 23]
    published = [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    np.testing.assert_allclose(found.remaining, published, atol=5e-4)
    assert found.median == 23
    assert kaplan_meier(durations(PLACEBO)).median == 8


def test_by_hand() -> None:
    """Three of four at risk leave 3/4, then one of two at risk leaves a half of that: 3/8."""
    found = kaplan_meier([Duration(1, True), Duration(2, False), Duration(3, True), Duration(4, False)])
    np.testing.assert_allclose(found.remaining, [3 / 4, 3 / 8])
    assert found.median == 3
    assert found.mean_until_last == pytest.approx(1 + 2 * 3 / 4 + 1 * 3 / 8)


def test_nobody_got_there() -> None:
    found = kaplan_meier([Duration(5, False), Duration(7, False)])
    assert (found.median, found.mean_until_last, len(found.times)) == (None, 7.0, 0)
    with pytest.raises(rm.InputError, match="at least one"):
        kaplan_meier([])


@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=25))
def test_agrees_with_scipy(pairs: list[tuple[int, bool]]) -> None:
    found = kaplan_meier([Duration(float(value), reached) for value, reached in pairs])
    values, censored = np.array([v for v, _ in pairs], float), np.array([not r for _, r in pairs])
    theirs = ecdf(CensoredData.right_censored(values, censored)).sf
    np.testing.assert_allclose(found.remaining, theirs.evaluate(found.times), atol=1e-12)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=25))
def test_without_censoring_it_is_the_plain_mean(values: list[int]) -> None:
    found = kaplan_meier([Duration(float(value), True) for value in values])
    assert found.mean_until_last == pytest.approx(np.mean(values))
    assert found.median == sorted(values)[(len(values) - 1) // 2]
