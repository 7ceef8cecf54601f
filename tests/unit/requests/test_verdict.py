"""The verdict: oracles pass, memory is seen, deviations that every descendant keeps are not, few cannot be judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from remanence.errors import InputError
from remanence.forecast import SignalExpectation
from remanence.requests.verdict import (
    DECIDING,
    MARGIN,
    Excess,
    SignalVerdict,
    Verdict,
    Word,
    judge_signals,
    without_models,
)

SPREAD, MODELS, LEVEL = 0.8, 5, 4.0
Drawn = tuple[np.ndarray, np.ndarray, SignalExpectation]


def excess(before: np.ndarray, after: np.ndarray, expected: SignalExpectation) -> tuple[float, float, float]:
    """The excess before and after, and its standard error."""
    made = Excess.of(before, expected)
    return made(before), made(after), made.error


def drawn(rng: np.random.Generator, size: int, remaining: float, *, kept: float = 0.0) -> Drawn:
    """Signals before and after, when this share of the memory remains, and what reference models say.

    Before unlearning every example is as sure as the level. Of the chance deviations of the model, `kept` stays.
    """
    truth = rng.normal(2.0, 1.0, size).clip(max=LEVEL)
    chance = rng.normal(0, SPREAD, size)
    before = LEVEL + chance
    fresh = rng.normal(0, SPREAD, size)
    after = truth + remaining * (LEVEL - truth) + kept * chance + np.sqrt(1 - kept**2) * fresh
    values = truth + rng.normal(0, SPREAD / np.sqrt(MODELS), size)
    expected = SignalExpectation(
        values,
        np.full(size, SPREAD**2),
        np.full(size, MODELS),
        np.zeros(size, np.int64),
        0.0,
        0.0,
        np.zeros(size),
    )
    return before, after, expected


def judged(*signals: tuple[str, Drawn], looks: int = 1) -> Word:
    before, after, expected = ({name: part[i] for name, part in signals} for i in range(3))
    return judge_signals(before, after, expected, looks=looks).word  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [0.0, 0.9])
def test_the_excess_of_an_oracle_is_zero_also_if_chance_deviations_stay(kept: float) -> None:
    rng = np.random.default_rng(0)
    found = np.array([excess(*drawn(rng, 60, 0.0, kept=kept)) for _ in range(400)])
    assert found[:, 1].mean() == pytest.approx(0.0, abs=0.03)
    assert found[:, 0].mean() > 2.0
    assert found[:, 2].mean() == pytest.approx(found[:, 1].std(), rel=0.25)


def test_memory_that_remains_is_seen() -> None:
    rng = np.random.default_rng(1)
    half, whole = (np.mean([excess(*drawn(rng, 60, share))[1] for _ in range(100)]) for share in (0.5, 1.0))
    assert whole == pytest.approx(np.mean([excess(*drawn(rng, 60, 1.0))[0] for _ in range(100)]), abs=0.1)
    assert half == pytest.approx(whole / 2, abs=0.1)


def test_shifts_and_fewer_examples_make_the_error_larger() -> None:
    before, after, expected = drawn(np.random.default_rng(2), 60, 0.0)
    plain = excess(before, after, expected)[2]
    assert excess(before, after, replace(expected, shift=0.1))[2] > plain
    assert excess(before, after, replace(expected, group_shift=0.1))[2] > plain
    few = SignalExpectation(
        expected.values[:10],
        expected.variances[:10],
        expected.models[:10],
        expected.groups[:10],
        0.0,
        0.0,
        np.zeros(10),
    )
    assert excess(before[:10], after[:10], few)[2] > plain
    assert excess(before, after, replace(expected, lowered=np.full(60, 0.2)))[2] == pytest.approx(plain + 0.2)


def test_without_models_there_is_nothing_to_judge_by() -> None:
    verdict = without_models(looks=2)
    assert (verdict.word, verdict.looks) == (Word.UNJUDGED, 2)
    assert "there is no model that was never trained on them" in verdict.sentence()
    assert verdict.document()["signals"] == []


def test_a_set_that_models_without_it_are_surer_about_has_an_excess_too() -> None:
    _, after, expected = drawn(np.random.default_rng(3), 60, 0.0)
    at_first, _, error = excess(expected.values.min() - np.ones(60), after, expected)
    assert at_first < 0 < error


def test_oracles_pass_and_models_at_the_margin_rarely_do() -> None:
    rng = np.random.default_rng(4)
    at_margin = MARGIN / np.mean([excess(*drawn(rng, 80, 1.0))[1] for _ in range(200)])
    words = {
        share: [judged((DECIDING, drawn(rng, 80, share))) for _ in range(400)]
        for share in (0.0, at_margin, 1.0)
    }
    passed = {share: np.mean([word is Word.CONFIRMED for word in found]) for share, found in words.items()}
    assert passed[0.0] > 0.95
    assert passed[at_margin] < 0.08
    assert set(words[1.0]) == {Word.REFUTED}


def test_too_few_examples_cannot_be_judged() -> None:
    rng = np.random.default_rng(5)
    assert {judged((DECIDING, drawn(rng, 19, share))) for share in (0.0, 1.0)} == {Word.UNJUDGED}

    def unlike(size: int) -> Drawn:
        """Reference models that differ from each other by a common shift."""
        before, after, expected = drawn(rng, size, 0.0)
        return before, after, replace(expected, shift=1.0)

    assert {judged((DECIDING, unlike(25))) for _ in range(20)} == {Word.UNJUDGED}
    before, after, expected = unlike(25)
    verdict = judge_signals({DECIDING: before}, {DECIDING: after}, {DECIDING: expected})
    assert "cannot be judged" in verdict.sentence()


def test_a_second_signal_can_refute_but_never_confirm() -> None:
    rng = np.random.default_rng(6)
    good, bad, small = drawn(rng, 80, 0.0), drawn(rng, 80, 1.0), drawn(rng, 10, 0.0)
    assert judged((DECIDING, good), ("log_odds", good)) is Word.CONFIRMED
    assert judged((DECIDING, good), ("log_odds", bad)) is Word.REFUTED
    assert judged((DECIDING, bad), ("log_odds", good)) is Word.REFUTED
    assert judged((DECIDING, small), ("log_odds", good)) is Word.UNJUDGED
    assert judged(("log_odds", good)) is Word.CONFIRMED  # a task without classes has this signal only


def test_every_further_look_must_be_surer() -> None:
    before, after, expected = drawn(np.random.default_rng(7), 80, 0.0)
    signals = ({DECIDING: before}, {DECIDING: after}, {DECIDING: expected})
    first, third = judge_signals(*signals), judge_signals(*signals, looks=3)
    assert third.alpha == pytest.approx(first.alpha / 4)
    assert third.signals[0].high > first.signals[0].high
    assert third.document()["looks"] == 3
    assert f"less than {MARGIN:g}" in first.sentence()


def test_a_verdict_without_signals_is_refused() -> None:
    with pytest.raises(InputError, match="at least one signal"):
        judge_signals({}, {}, {})


def test_the_sentence_quotes_the_signal_that_refutes() -> None:
    unsure = SignalVerdict("predicted_log_odds", -0.4, -0.36, 0.44, 0.36, 0.57, Word.UNJUDGED)
    refuting = SignalVerdict("log_odds", 2.1, 2.2, 0.4, 2.86, 0.6, Word.REFUTED)
    verdict = Verdict(Word.REFUTED, (unsure, refuting), 0.8, 0.05)
    assert "+2.20 ± 0.40 (log_odds" in verdict.sentence()
    assert "more than 0.8, with a confidence of 95 %" in verdict.sentence()
    confirmed = replace(unsure, word=Word.CONFIRMED)
    assert "+2.20" in Verdict(Word.REFUTED, (confirmed, refuting), 0.8, 0.05).sentence()
    near = replace(unsure, after=0.6, high=1.3, word=Word.REFUTED)
    assert "could not be shown" in Verdict(Word.REFUTED, (near,), 0.8, 0.05).sentence()
