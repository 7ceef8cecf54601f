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
"""Number of examples per page."""
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
class ExampleFilter:
    """The examples to show, and their order.

    Args:
        score: the score to sort by.
        against: the second score of the scatter plot.
        largest_first: sort in descending order.
        label: class to show; None for all.
        low: lowest percentile of the score.
        high: highest percentile of the score.
        within: range of the score.
        within_against: range of the second score.
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
class ExamplePage:
    """Positions of the examples on one page; `total` counts the examples on all pages."""

    places: NDArray[np.int64]
    total: int
    page: int
    pages: int


def read_filter(query: Mapping[str, str], scores: Sequence[str], classes: int) -> ExampleFilter:
    """Read a filter from the query of an address; an invalid value is an error.

    `of` and `against_of` name the scores that the values were chosen for; values for another score are ignored.
    """
    score = _choice(query, "score", list(scores), next(iter(scores)))
    others = [other for other in scores if other != score] or [score]
    against = query.get("against", "")
    against = _choice(query, "against", list(scores), others[0]) if against != score else others[0]
    label = int(_number(query, "label", 0, classes - 1)) if query.get("label") else None
    low, high = (_number(query, name, 0, 100, start) for name, start in (("low", 0.0), ("high", 100.0)))
    _in_order("low", low, "high", high)
    return ExampleFilter(
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


def select_page(
    chosen: ExampleFilter, scores: Mapping[str, Floats], percentile: Floats, labels: NDArray[np.int64]
) -> ExamplePage:
    """The chosen page of examples; a number beyond the last page gives the last.

    Args:
        chosen: the filter.
        scores: the values of the score and of the one against it.
        percentile: of every example by the score.
        labels: class numbers.
    """
    values = scores[chosen.score]
    keep = (percentile >= chosen.low) & (percentile <= chosen.high) & chosen.within.holds(values)
    keep &= chosen.within_against.holds(scores[chosen.against])
    if chosen.label is not None:
        keep &= labels == chosen.label
    kept = np.flatnonzero(keep)
    order = np.argsort(-values[kept] if chosen.largest_first else values[kept], kind="stable")
    pages = max(1, -(-len(kept) // PAGE))
    page = min(chosen.page, pages)
    return ExamplePage(kept[order][(page - 1) * PAGE : page * PAGE], len(kept), page, pages)


def percentiles(values: Floats) -> Floats:
    """The percentage of examples whose score is not larger, for every example."""
    ranks: Floats = rankdata(values, method="max")
    return 100 * ranks / max(len(values), 1)


def _choice(query: Mapping[str, str], name: str, known: Sequence[str], usual: str) -> str:
    value = query.get(name) or usual
    if value not in known:
        raise InputError(f"`{name}` must be one of {', '.join(known)}.")
    return value


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
