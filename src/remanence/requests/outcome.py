"""The outcome of a deletion request: what may be said about the examples afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from remanence.requests.verdict import Verdict, Word


class Outcome(StrEnum):
    """One of four outcomes; every document, page and command uses these words."""

    FORGOTTEN = "forgotten"
    NOT_FORGOTTEN = "not forgotten"
    NOT_JUDGED = "carried out, not judged"
    RETRAINED = "retrained"

    @property
    def is_final(self) -> bool:
        """Whether the request is settled, so that the earlier models are no longer needed."""
        return self in (Outcome.FORGOTTEN, Outcome.RETRAINED)

    @property
    def meaning(self) -> str:
        """The outcome in one sentence, for documents."""
        return _MEANINGS[self]


_MEANINGS = {
    Outcome.FORGOTTEN: "The criterion of unlearning holds, and signals that did not decide when to stop confirm it: on "
    "these examples the model cannot be told from models that were never trained on them, within the stated margin.",
    Outcome.NOT_FORGOTTEN: "The criterion of unlearning does not hold, or other signals do not confirm it. The "
    "examples are left out of all further training, but they count as not forgotten, and the request stays open.",
    Outcome.NOT_JUDGED: "Unlearning was carried out, but it cannot be judged: there are too few examples, or no model "
    "that was never trained on such a set was available.",
    Outcome.RETRAINED: "The model was trained again from its initial weights, without these examples.",
}


_BY_ORACLE = "log_odds"
"""The metric that is compared with an oracle where the reference models cannot judge."""
_BY_VERDICT = {
    Word.CONFIRMED: Outcome.FORGOTTEN,
    Word.REFUTED: Outcome.NOT_FORGOTTEN,
    Word.UNJUDGED: Outcome.NOT_JUDGED,
}


def judge(
    *,
    reached: bool,
    beyond: Sequence[str],
    audit: Sequence[Mapping[str, Any]],
    verdict: Verdict,
) -> Outcome:
    """The outcome of unlearning.

    Args:
        reached: whether the criterion held when unlearning stopped.
        beyond: in which respects the set is outside the range of the reference models.
        audit: the rows of the audit. Where the reference models cannot judge, the oracle does, if there is one.
        verdict: what the signals say that did not decide when unlearning stopped.
    """
    if not reached:
        return Outcome.NOT_FORGOTTEN
    if not beyond:
        return _BY_VERDICT[verdict.word]
    by_oracle = next(row["verdict_by_oracle"] for row in audit if row["metric"] == _BY_ORACLE)
    if by_oracle is None:
        return Outcome.NOT_JUDGED
    return Outcome.FORGOTTEN if by_oracle == "within" else Outcome.NOT_FORGOTTEN


def outcome_of_all(whole: Outcome, parts: Sequence[Outcome]) -> Outcome:
    """The outcome of requests that were taken together: not forgotten if a single one is not.

    A part can be too small to be judged alone; then all of them together are judged.
    """
    return Outcome.NOT_FORGOTTEN if Outcome.NOT_FORGOTTEN in parts else whole


def open_requests(ledger: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of a ledger whose examples are not forgotten; retraining settles all rows before it."""
    last = max((i for i, row in enumerate(ledger) if row["outcome"] == Outcome.RETRAINED), default=-1)
    return [row for row in ledger[last + 1 :] if row["outcome"] == Outcome.NOT_FORGOTTEN]
