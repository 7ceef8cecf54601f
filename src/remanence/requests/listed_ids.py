"""Which ids of a list can be removed from a run, and why the others cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from remanence.errors import DataError
from remanence.requests.request_ledger import read_ledger
from remanence.requests.signing import reference_of
from remanence.training import Run
from remanence.types import Ids

Policy = Literal["refuse", "skip"]
UNKNOWN, HELD_OUT, NEVER_TRAINED = "never in the data", "in the held-out split", "never trained on"
_SHOWN = 20


def removable(
    entries: Sequence[tuple[str, str]], run: Run, source: str, *, unknown: Policy, already_removed: Policy
) -> tuple[list[str], dict[str, int]]:
    """The ids of a list that a run still holds, and the number of skipped ids by reason.

    Args:
        entries: the place and the text of each id.
        run: the run to remove them from.
        source: the name of the list, for messages.
        unknown: what to do with ids that the run was never trained on.
        already_removed: what to do with ids that were removed from it before.
    """
    trained, removed = set(_texts(run.clean[0].ids)), _removed(run)
    others = _not_trained_on(run, trained)
    kept: list[str] = []
    refused: dict[str, list[tuple[str, str]]] = {}
    skipped: dict[str, int] = {}
    for place, text in entries:
        reason = removed.get(text) or others.get(text) or (None if text in trained else UNKNOWN)
        if reason is None:
            kept.append(text)
        elif (already_removed if text in removed else unknown) == "skip":
            skipped[reason] = skipped.get(reason, 0) + 1
        else:
            refused.setdefault(reason, []).append((place, text))
    if refused:
        raise DataError(_refusal(refused, removed, run, source, len(entries)))
    if not kept:
        counts = "; ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise DataError(
            f"{source} must list an id that {run.folder.path} still holds; all are skipped: {counts}."
        )
    return kept, skipped


def _removed(run: Run) -> dict[str, str]:
    """Every id that was removed, with the reason."""
    reasons = dict.fromkeys(_texts(run.forgotten), "removed by `remanence unlearn`")
    for row in read_ledger(run):
        reason = f"removed on {row['when'][:10]} by request {reference_of(row['salt'])}"
        reasons |= dict.fromkeys(map(str, row["ids"]), reason)
    return reasons


def _not_trained_on(run: Run, trained: Collection[str]) -> dict[str, str]:
    """Two data sets that number their examples from 0 share ids; a list means those of the training data."""
    held_out = [text for text in _texts(run.clean[1].ids) if text not in trained]
    return dict.fromkeys(held_out, HELD_OUT) | dict.fromkeys(_texts(run.never_seen), NEVER_TRAINED)


def _texts(ids: Ids) -> list[str]:
    return [str(example) for example in ids.tolist()]


def _refusal(
    refused: Mapping[str, Sequence[tuple[str, str]]],
    removed: Mapping[str, str],
    run: Run,
    source: str,
    total: int,
) -> str:
    """The first problem with its place, then all of them, counted by reason."""
    number = sum(map(len, refused.values()))
    gone = [text for entries in refused.values() for _, text in entries if text in removed]
    if UNKNOWN in refused:
        place, text = refused[UNKNOWN][0]
        first = f"{place}: no example has the id {text!r}"
    elif gone:
        first = (
            f"{source} must name examples that {run.folder.path} still holds; {len(gone)} of its {total} have been "
            f"forgotten already, the first is {gone[0]}"
        )
    else:
        reason, entries = next(iter(refused.items()))
        first = f"{entries[0][0]}: the example with the id {entries[0][1]!r} is {reason}"
    reasons = "; ".join(f"{len(entries)} {reason} ({_some(entries)})" for reason, entries in refused.items())
    return (
        f"{first}. In all, {number} of {total} ids cannot be removed: {reasons}. To leave them out, set `unknown` or "
        "`already_removed` to skip. Nothing was changed."
    )


def _some(entries: Sequence[tuple[str, str]]) -> str:
    more = f" and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return ", ".join(text[:40] for _, text in entries[:_SHOWN]) + more
