"""Which examples a page shows: filtered, sorted and cut into pages on the server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from remanence.errors import InputError

PAGE = 48
"""Examples a page: fills a screen, loads at once."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Range:
    """From one value to another, both included; an end that is not given is open."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, values: Floats) -> NDArray[np.bool_]:
        """Which values lie in it."""
        return (values >= self.low) & (values <= self.high)


@dataclass(frozen=True)
class Wish:
    """What a visitor asked to see.

    Args:
        score: sorted by this.
        against: the second score of the scatter plot.
        largest_first: or the smallest.
        label: only this class; all when None.
        low: only from this percentile of the score on.
        high: only up to this one.
        within: only where the score has these values.
        within_against: only where the second score has these.
        page: counted from 1.
    """

    score: str
    against: str = ""
    largest_first: bool = True
    label: int | None = None
    low: float = 0.0
    high: float = 100.0
    within: Range = Range()
    within_against: Range = Range()
    page: int = 1


@dataclass(frozen=True)
class Shown:
    """A page of positions, and what it is a page of."""

    places: NDArray[np.int64]
    found: int
    page: int
    pages: int


def read_wish(query: Mapping[str, str], scores: Sequence[str], classes: int) -> Wish:
    """A wish from the address's query; what cannot be meant is refused in one sentence.

    `of` and `against_of` say which scores the values were meant for: those of another score are passed over.
    """
    score = _choice(query, "score", list(scores), next(iter(scores)))
    others = [each for each in scores if each != score] or [score]
    against = query.get("against", "")
    against = _choice(query, "against", list(scores), others[0]) if against != score else others[0]
    label = int(_number(query, "label", 0, classes - 1)) if query.get("label") else None
    low, high = (_number(query, name, 0, 100, start) for name, start in (("low", 0.0), ("high", 100.0)))
    _in_order("low", low, "high", high)
    return Wish(
        score=score,
        against=against,
        largest_first=_choice(query, "order", ["largest", "smallest"], "largest") == "largest",
        label=label,
        low=low,
        high=high,
        within=_range(query, "from", "to") if query.get("of", score) == score else Range(),
        within_against=_range(query, "against_from", "against_to")
        if query.get("against_of", against) == against
        else Range(),
        page=int(_number(query, "page", 1, 10**9, 1.0)),
    )


def show(wish: Wish, scores: Mapping[str, Floats], percentile: Floats, labels: NDArray[np.int64]) -> Shown:
    """The wished page; one beyond the last is the last.

    Args:
        wish: what is asked for.
        scores: the values of the score and of the one against it.
        percentile: of every example by the score.
        labels: class numbers.
    """
    values = scores[wish.score]
    keep = (percentile >= wish.low) & (percentile <= wish.high) & wish.within.holds(values)
    keep &= wish.within_against.holds(scores[wish.against])
    if wish.label is not None:
        keep &= labels == wish.label
    kept = np.flatnonzero(keep)
    order = np.argsort(-values[kept] if wish.largest_first else values[kept], kind="stable")
    pages = max(1, -(-len(kept) // PAGE))
    page = min(wish.page, pages)
    return Shown(kept[order][(page - 1) * PAGE : page * PAGE], len(kept), page, pages)


def percentiles(values: Floats) -> Floats:
    """For each example the share of examples, in per cent, that have no larger score."""
    ranks: Floats = rankdata(values, method="max")
    return 100 * ranks / max(len(values), 1)


def _choice(query: Mapping[str, str], name: str, known: Sequence[str], usual: str) -> str:
    found = query.get(name) or usual
    if found not in known:
        raise InputError(f"`{name}` must be one of {', '.join(known)}.")
    return found


def _range(query: Mapping[str, str], low: str, high: str) -> Range:
    ends = [_end(query, name, usual) for name, usual in ((low, -math.inf), (high, math.inf))]
    _in_order(low, ends[0], high, ends[1])
    return Range(*ends)


def _end(query: Mapping[str, str], name: str, usual: float) -> float:
    try:
        value = float(query.get(name) or usual)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise InputError(f"`{name}` must be a number.")
    return value


def _in_order(low: str, least: float, high: str, most: float) -> None:
    if least > most:
        raise InputError(f"`{low}` must not be above `{high}`; got {least:g} and {most:g}.")


def _number(
    query: Mapping[str, Any], name: str, least: float, most: float, usual: float | None = None
) -> float:
    text = query.get(name) or ("" if usual is None else str(usual))
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"`{name}` must be a number from {least:g} to {most:g}.") from None
    if not least <= value <= most:
        raise InputError(f"`{name}` must be a number from {least:g} to {most:g}.")
    return value
