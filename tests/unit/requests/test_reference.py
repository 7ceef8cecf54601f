"""The reference pool: what it expects is what models never trained on a set would show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from remanence.errors import DataError, InputError
from remanence.forecast import STOPPING, ReferencePool
from remanence.requests.reference_folds import assign_folds

N, CLASSES, SLOPE = 600, 5, 1.5
LABELS = np.repeat(np.arange(CLASSES), N // CLASSES)
OWN = np.random.default_rng(0).normal(0, 2, N)


def frequency(gone: np.ndarray) -> np.ndarray:
    """How frequent each class is without these examples, relative to all data."""
    kept = 1 - np.bincount(LABELS[gone], minlength=CLASSES) / (N // CLASSES)
    return kept / kept.mean()


def truth(rows: np.ndarray) -> float:
    """What a model without these rows shows of them on average: a class loses when it is thinned out beside others."""
    return float((OWN[rows] + SLOPE * np.log(frequency(rows))[LABELS[rows]]).mean())


def pool(models: int = 40, shift: float = 0.1, noise: float = 0.9, seed: int = 1) -> ReferencePool:
    rng = np.random.default_rng(seed)
    left_out = assign_folds(LABELS, models, seed=seed)
    log_odds = np.zeros((models, N))
    for row, gone in enumerate(left_out):
        effect = SLOPE * np.log(frequency(gone))[LABELS]
        log_odds[row] = OWN + effect + rng.normal(0, shift) + rng.normal(0, noise, N)
    calls = (log_odds < 0).astype(float)
    return ReferencePool(np.arange(N), LABELS, left_out, log_odds * left_out, calls * left_out)


@pytest.mark.parametrize("models", [12, 40])  # of 12, each is trained on about half of every class
@pytest.mark.parametrize("kind", ["random", "half of a class", "three quarters of a class", "hard"])
def test_a_set_is_expected_to_show_what_models_without_it_show(kind: str, models: int) -> None:
    rng = np.random.default_rng(3)
    rows = {
        "random": rng.choice(N, 50, replace=False),
        "half of a class": np.flatnonzero(LABELS == 2)[:60],
        "three quarters of a class": np.flatnonzero(LABELS == 1)[:90],
        "hard": np.argsort(OWN)[:40],
    }[kind]
    expected = pool(models).expect(rows)
    assert expected.log_odds == pytest.approx(truth(rows), abs=0.25)
    assert expected.beyond == ()


def test_the_spread_is_that_of_one_model_to_the_next() -> None:
    known = pool(shift=0.3, noise=0.9)
    for size in (1, 25, 100):
        true = np.sqrt(0.3**2 + 0.9**2 / size)
        assert known.expect(np.arange(size)).log_odds_spread == pytest.approx(true, rel=0.25)


def test_more_of_a_class_than_any_model_left_out_is_said() -> None:
    nearly_all = np.flatnonzero(LABELS == 3)[:115]
    (sentence,) = pool().expect(nearly_all).beyond
    assert "96%" in sentence
    assert "75%" in sentence


def test_forgotten_examples_leave_the_pool_and_the_others_stay() -> None:
    known = pool()
    less = known.without(np.arange(100, 110))
    assert len(less.ids) == N - 10
    with pytest.raises(DataError, match="not in the calibration"):
        less.expect(np.array([105]))
    others = np.arange(300, 340)
    assert less.expect(others).log_odds == pytest.approx(
        known.expect(others).log_odds, abs=0.01
    )  # they share a slope


def test_an_example_that_no_two_models_left_out_is_refused() -> None:
    known = pool()
    never = known.left_out.copy()
    never[:, 7] = False
    with pytest.raises(InputError, match="at least two models; 1 are not"):
        ReferencePool(known.ids, LABELS, never, known.log_odds, known.calls)


@pytest.mark.parametrize("models", [8, 12, 20, 40, 57])
def test_folds_leave_everyone_out_about_equally_often(models: int) -> None:
    losses = np.random.default_rng(1).exponential(size=N)
    left_out = assign_folds(LABELS, models, seed=5, losses=losses)
    often = left_out.sum(axis=0)
    assert often.min() >= 2
    assert often.max() - often.min() <= 3
    for label in range(CLASSES):
        share = left_out[4:, label == LABELS].mean(axis=1)
        assert sorted(np.round(share, 2))[-4:] == pytest.approx([0.5, 0.5, 0.75, 0.75], abs=0.02)
        assert len(share) == 4 or min(share) == pytest.approx(max(0.1, 1 / (models - 8)), abs=0.02)
        members = np.flatnonzero(label == LABELS)
        hardest = members[np.argsort(losses[members])][-len(members) // 4 :]
        assert left_out[3, hardest].all()  # hard examples of all classes leave together
        assert left_out[3, members].sum() == len(hardest)


@pytest.mark.parametrize("models", [4, 5, 7])
def test_a_very_small_pool_leaves_everyone_out_twice_in_parts_of_several_sizes(models: int) -> None:
    left_out = assign_folds(LABELS, models, seed=5)
    assert (left_out.sum(axis=0) == 2).all()
    shares = left_out[models // 2 :].mean(axis=1)
    assert shares.max() > 1.5 * shares.min()


def test_too_few_models_are_refused() -> None:
    with pytest.raises(InputError, match="at least 4; got 3"):
        assign_folds(LABELS, 3, seed=0)


def test_what_examples_lose_when_all_others_as_hard_leave_is_expected() -> None:
    rng = np.random.default_rng(2)
    losses = rng.exponential(size=N)
    left_out = assign_folds(LABELS, 12, seed=5, losses=losses)
    known = ReferencePool(np.arange(N), LABELS, left_out, 0.0 * left_out, 0.0 * left_out, losses=losses)
    log_odds = OWN - 2.0 * known._alike(left_out) + rng.normal(0, 0.2, (12, N))
    known = replace(known, log_odds=log_odds * left_out)
    hard = np.argsort(losses)[-N // 10 :]
    hard = np.concatenate([hard[LABELS[hard] == label][-8:] for label in range(CLASSES)])
    for rows in (hard, rng.choice(N, 40, replace=False)):
        removed = np.isin(np.arange(N), rows)
        true = float((OWN - 2.0 * known._alike(removed)[0])[rows].mean())
        expected = known.expect(rows)
        assert abs(expected.log_odds - true) < 0.15
        assert known.expect_signal(STOPPING, rows).values.mean() == pytest.approx(expected.log_odds, abs=1e-6)
    without = replace(known, losses=None).expect(rows)
    assert abs(without.log_odds - true) > 0.3  # as if so many as hard as they left with them
    assert without.log_odds_spread > 1.5 * expected.log_odds_spread


def test_pools_are_joined_model_by_model() -> None:
    one, other = pool(models=8, seed=1), pool(models=4, seed=2)
    both = one.joined(other)
    assert len(both.left_out) == 12
    assert np.array_equal(both.log_odds[8:], other.log_odds)
    with pytest.raises(InputError, match="same examples"):
        one.joined(other.without(np.arange(3)))


def test_a_signal_is_expected_example_by_example() -> None:
    known = pool(shift=0.3, noise=0.9)
    signal = replace(known, signals={"log_odds": known.log_odds})
    rows = np.arange(0, 200, 5)
    expected = signal.expect_signal("log_odds", rows)
    assert expected.values.mean() == pytest.approx(known.expect(rows).log_odds, abs=1e-6)
    assert np.corrcoef(expected.values, OWN[rows])[0, 1] > 0.95
    assert expected.variances.mean() == pytest.approx(0.9**2 + 0.3**2, rel=0.25)
    assert expected.models.min() >= 2
    assert expected.group_shift < 0.1  # the shift is common to all classes
    less = signal.without(rows[:3])
    assert less.signals["log_odds"].shape[1] == N - 3
    with pytest.raises(InputError, match="`odd` must be"):
        replace(known, signals={"odd": np.zeros((2, 2))})
