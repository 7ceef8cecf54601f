"""Which examples a page shows: filtered, sorted and cut into pages on the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from remanence.errors import InputError

PAGE = 48
"""Examples a page: fills a screen, loads at once."""


@dataclass(frozen=True)
class Wish:
    """What a visitor asked to see.

    Args:
        score: sorted by this.
        largest_first: or the smallest.
        label: only this class; all when None.
        low: only from this percentile of the score on.
        high: only up to this one.
        page: counted from 1.
    """

    score: str
    largest_first: bool = True
    label: int | None = None
    low: float = 0.0
    high: float = 100.0
    page: int = 1


@dataclass(frozen=True)
class Shown:
    """A page of positions, and what it is a page of."""

    places: NDArray[np.int64]
    found: int
    page: int
    pages: int


def read_wish(query: Mapping[str, str], scores: Mapping[str, Any], classes: int) -> Wish:
    """A wish from the address's query; what cannot be meant is refused in one sentence."""
    score = query.get("score") or next(iter(scores))
    if score not in scores:
        raise InputError(f"`score` must be one of {', '.join(scores)}.")
    label = int(_number(query, "label", 0, classes - 1)) if query.get("label") else None
    low, high = (_number(query, name, 0, 100, start) for name, start in (("low", 0.0), ("high", 100.0)))
    if low > high:
        raise InputError(f"`low` must not be above `high`; got {low:g} and {high:g}.")
    order = query.get("order") or "largest"
    if order not in ("largest", "smallest"):
        raise InputError("`order` must be largest or smallest.")
    page = int(_number(query, "page", 1, 10**9, 1.0))
    return Wish(score, order == "largest", label, low, high, page)


def show(wish: Wish, values: NDArray[np.float64], labels: NDArray[np.int64]) -> Shown:
    """The wished page; one beyond the last is the last."""
    percentile = percentiles(values)
    keep = (percentile >= wish.low) & (percentile <= wish.high)
    if wish.label is not None:
        keep &= labels == wish.label
    kept = np.flatnonzero(keep)
    order = np.argsort(-values[kept] if wish.largest_first else values[kept], kind="stable")
    pages = max(1, -(-len(kept) // PAGE))
    page = min(wish.page, pages)
    return Shown(kept[order][(page - 1) * PAGE : page * PAGE], len(kept), page, pages)


def percentiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each example the share of examples, in per cent, that have no larger score."""
    ranks: NDArray[np.float64] = rankdata(values, method="max")
    return 100 * ranks / max(len(values), 1)


def _number(
    query: Mapping[str, str], name: str, least: float, most: float, usual: float | None = None
) -> float:
    text = query.get(name) or ("" if usual is None else str(usual))
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"`{name}` must be a number from {least:g} to {most:g}.") from None
    if not least <= value <= most:
        raise InputError(f"`{name}` must be a number from {least:g} to {most:g}.")
    return value
