"""The bound from one run, against enumeration of small mechanisms and closed forms."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

import remanence as rm
from remanence.audit.one_run import FEWEST, lower_bound, one_run_bound, p_value

COINS = list(itertools.product((0, 1), repeat=3))


def random_mechanism(draw: np.random.Generator, spread: float, outputs: int) -> np.ndarray:
    """[8, outputs] probabilities of the outputs for each outcome of three coins."""
    made = np.exp(spread * draw.normal(size=(len(COINS), outputs)))
    probabilities: np.ndarray = made / made.sum(axis=1, keepdims=True)
    return probabilities


def privacy(mechanism: np.ndarray) -> float:
    """The exact ε: the largest log-ratio between outcomes that differ in one coin."""
    largest = 0.0
    for a, b in itertools.permutations(range(len(COINS)), 2):
        if sum(x != y for x, y in zip(COINS[a], COINS[b], strict=True)) == 1:
            largest = max(largest, float(np.log(mechanism[a] / mechanism[b]).max()))
    return largest


@pytest.mark.parametrize("seed", range(40))
def test_no_private_mechanism_exceeds_the_tail(seed: int) -> None:
    """The best guesser of a random mechanism, whose exact ε is computed, stays below the p-value at that ε."""
    draw = np.random.default_rng(seed)
    mechanism = random_mechanism(draw, draw.uniform(0.05, 1.5), 6)
    epsilon = privacy(mechanism)
    for correct in (1, 2, 3):
        # for every output the guesser answers the three coins that are right together most often
        success = 0.0
        for o in range(mechanism.shape[1]):
            success += max(
                sum(
                    mechanism[row, o] / len(COINS)
                    for row, coins in enumerate(COINS)
                    if sum(x == y for x, y in zip(coins, guess, strict=True)) >= correct
                )
                for guess in COINS
            )
        assert success <= p_value(3, 3, correct, epsilon) + 1e-12


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_randomized_response_reaches_it(epsilon: float) -> None:
    """Each coin is told rightly with probability e^ε/(1+e^ε), independently: nothing can do better."""
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    for correct in range(9):
        tail = sum(
            math.prod(right if hit else 1 - right for hit in hits)
            for hits in itertools.product((True, False), repeat=8)
            if sum(hits) >= correct
        )
        assert p_value(8, 8, correct, epsilon) == pytest.approx(tail)


@pytest.mark.parametrize("delta", [0.001, 0.02])
def test_delta_covers_a_mechanism_that_sometimes_tells(delta: float) -> None:
    """Each coin is told with probability δ and random otherwise: (0, δ)-private, correct with (1 + δ)/2."""
    for correct in range(60, 101, 5):
        tail = float(binom.sf(correct - 1, 100, (1 + delta) / 2))
        assert tail <= p_value(100, 100, correct, 0.0, delta) + 1e-12
        assert p_value(100, 100, correct, 0.0, delta) > p_value(100, 100, correct, 0.0)


def test_delta_covers_a_mechanism_that_tells_everything_at_once() -> None:
    """All coins are told with probability δ: also (0, δ)-private, and correct together."""
    delta, m = 0.01, 20
    for correct in range(11, m + 1):
        tail = delta + (1 - delta) * float(binom.sf(correct - 1, m, 0.5))
        assert tail <= p_value(m, m, correct, 0.0, delta) + 1e-12


@pytest.mark.parametrize(
    ("m", "r", "v", "epsilon", "delta"), [(1000, 600, 600, 5.0, 1e-5), (50, 30, 22, 0.3, 1e-3)]
)
def test_the_formula_of_the_theorem_term_by_term(
    m: int, r: int, v: int, epsilon: float, delta: float
) -> None:
    q = 1 / (1 + math.exp(-epsilon))
    masses = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    beta, alpha = sum(masses[v:]), max(sum(masses[v - i : v]) / i for i in range(1, v + 1))
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(beta + 2 * m * delta * alpha)


def test_the_bound_solves_the_equation() -> None:
    bound = lower_bound(100, 100, 100)
    # q^100 = 0.05
    q = 0.05**0.01
    assert bound == pytest.approx(math.log(q / (1 - q)), abs=1e-5)
    assert lower_bound(100, 100, 55) == 0
    assert lower_bound(100, 50, 50) < bound


def test_nothing_is_proved_from_noise_and_much_from_memory() -> None:
    draw = np.random.default_rng(0)
    wrong = 0
    for _ in range(300):
        included = draw.random(80) < 0.5
        wrong += one_run_bound(draw.normal(size=80), included).epsilon > 0
    assert wrong / 300 <= 0.05
    included = draw.random(80) < 0.5
    told = one_run_bound(draw.normal(size=80) + 20 * included, included)
    assert told.correct == told.guesses or told.guesses == 80
    assert 2 < told.epsilon <= told.largest
    assert told.largest == pytest.approx(lower_bound(80, 80, 80, confidence=1 - 0.05 / 4))


def test_too_few_canaries_give_no_number() -> None:
    with pytest.raises(rm.InputError, match=f"at least {FEWEST} canaries; got 9"):
        one_run_bound(np.zeros(9), np.ones(9, bool))
    with pytest.raises(rm.InputError, match="one signal per canary"):
        one_run_bound(np.zeros(9), np.ones(12, bool))
    with pytest.raises(rm.InputError, match="`correct` ≤ `guesses`"):
        p_value(10, 5, 6, 1.0)
    with pytest.raises(rm.InputError, match="`epsilon` ≥ 0"):
        p_value(10, 5, 5, -1.0)
