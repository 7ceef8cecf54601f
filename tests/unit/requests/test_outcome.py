"""Four outcomes, and what each means for the ledger and for the exit code."""

from typing import Any

import pytest

from remanence.cli.exit_codes import ExitCode, exit_code_of
from remanence.requests import Outcome
from remanence.requests.outcome import judge, open_requests, outcome_of_all
from remanence.requests.verdict import SignalVerdict, Verdict, Word


def audit(verdict_by_oracle: str | None) -> list[dict[str, Any]]:
    return [
        {"metric": "ua", "verdict_by_oracle": "above"},
        {"metric": "log_odds", "verdict_by_oracle": verdict_by_oracle},
    ]


def verdict(word: Word) -> Verdict:
    row = SignalVerdict("log_odds", 1.0, 0.0, 0.1, 0.2, 0.9, word)
    return Verdict(word, (row,), margin=0.5, alpha=0.05)


@pytest.mark.parametrize(
    ("reached", "word", "outcome"),
    [
        (True, Word.CONFIRMED, Outcome.FORGOTTEN),
        (True, Word.REFUTED, Outcome.NOT_FORGOTTEN),
        (True, Word.UNJUDGED, Outcome.NOT_JUDGED),
        (False, Word.CONFIRMED, Outcome.NOT_FORGOTTEN),
        (False, Word.UNJUDGED, Outcome.NOT_FORGOTTEN),
    ],
)
@pytest.mark.parametrize("by_oracle", [None, "within", "above"])
def test_the_criterion_must_hold_and_the_verdict_must_confirm_it(
    reached: bool, word: Word, outcome: Outcome, by_oracle: str | None
) -> None:
    found = judge(reached=reached, beyond=(), audit=audit(by_oracle), verdict=verdict(word))
    assert found is outcome


@pytest.mark.parametrize(
    ("reached", "by_oracle", "outcome"),
    [
        (False, None, Outcome.NOT_FORGOTTEN),
        (True, None, Outcome.NOT_JUDGED),
        (True, "within", Outcome.FORGOTTEN),
        (True, "above", Outcome.NOT_FORGOTTEN),
    ],
)
@pytest.mark.parametrize("word", list(Word))
def test_without_a_model_that_left_out_such_a_set_only_an_oracle_can_judge(
    reached: bool, by_oracle: str | None, outcome: Outcome, word: Word
) -> None:
    """The reference models would be extrapolated, for the verdict as for the criterion."""
    beyond = ("it removes all of a class",)
    found = judge(reached=reached, beyond=beyond, audit=audit(by_oracle), verdict=verdict(word))
    assert found is outcome


def test_one_request_that_is_not_forgotten_makes_a_batch_not_forgotten() -> None:
    forgotten, unjudged = Outcome.FORGOTTEN, Outcome.NOT_JUDGED
    assert outcome_of_all(forgotten, [forgotten, Outcome.NOT_FORGOTTEN]) is Outcome.NOT_FORGOTTEN
    assert outcome_of_all(forgotten, [forgotten, unjudged]) is forgotten
    assert outcome_of_all(unjudged, [forgotten, unjudged]) is unjudged
    assert outcome_of_all(forgotten, []) is forgotten


def test_only_settled_outcomes_exit_with_0() -> None:
    assert {outcome: exit_code_of(outcome) for outcome in Outcome} == {
        Outcome.FORGOTTEN: ExitCode.DONE,
        Outcome.RETRAINED: ExitCode.DONE,
        Outcome.NOT_FORGOTTEN: ExitCode.NOT_FORGOTTEN,
        Outcome.NOT_JUDGED: ExitCode.NOT_JUDGED,
    }
    assert [outcome for outcome in Outcome if outcome.is_final] == [Outcome.FORGOTTEN, Outcome.RETRAINED]


def test_retraining_settles_the_requests_before_it() -> None:
    first, second, third = ({"outcome": "not forgotten", "size": size} for size in (1, 2, 3))
    retrained = {"outcome": "retrained"}
    assert open_requests([first, {"outcome": "forgotten"}, second]) == [first, second]
    assert open_requests([first, second, retrained, third]) == [third]
