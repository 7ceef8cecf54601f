"""Barriers between two runs, or of runs before and after unlearning beside those among oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from remanence.audit.auditing import check_oracles
from remanence.audit.barrier import POINTS, ROUNDS, Barrier, Match
from remanence.audit.run_barriers import (
    BarrierSettings,
    Pair,
    PairBarriers,
    barriers_of,
    oracle_pairs,
    summary,
)
from remanence.errors import InputError
from remanence.training import Run
from remanence.types import ForgetSet


@dataclass(frozen=True, eq=False)
class BarrierComparison:
    """The barriers between some pairs of runs.

    Args:
        pairs: the curves of each pair.
        match: how hidden units were matched.
        forget: name of the forget set, if there is one.
    """

    pairs: list[PairBarriers]
    match: Match
    forget: str | None

    @cached_property
    def summary(self) -> list[dict[str, Any]]:
        """One row per kind of pair and subset."""
        return summary(self.pairs)

    def document(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "match": self.match,
            "forget": self.forget,
            "summary": self.summary,
            "pairs": [
                {
                    "kind": pair.kind,
                    "a": pair.a,
                    "b": pair.b,
                    "curves": {subset: _curve(barrier) for subset, barrier in pair.curves.items()},
                }
                for pair in self.pairs
            ],
        }


def compare_barriers(
    runs: Sequence[Run] = (),
    *,
    oracles: Sequence[Run] = (),
    before: Sequence[Run] = (),
    after: Sequence[Run] = (),
    forget_set: ForgetSet | None = None,
    match: Match = "weights",
    on: Sequence[str] = (),
    points: int = POINTS,
    rounds: int = ROUNDS,
    examples: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    progress: Callable[[float, int], None] = lambda done, total: None,
) -> BarrierComparison:
    """Measure the loss barriers between two runs, or between oracles and runs before and after unlearning.

    Args:
        runs: two runs of one architecture; or
        oracles: runs that were trained without the forget set, with
        before: runs before unlearning, and
        after: runs after unlearning.
        forget_set: needed for the subsets forget and retain; oracles that were trained on it are refused.
        match: match hidden units by weights, by activations, or not at all.
        on: subsets of train, test, forget and retain; by default all that are available.
        points: number of points on the even grid.
        rounds: how often the spacing around the maximum is halved.
        examples: use at most this many examples of forget, retain and test each.
        seed: random seed of the matching and of the sample of examples.
        out: folder of finished pairs, which are not computed again.
        progress: called with the pairs done, the current one in part, and their number.
    """
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; `out` must be a folder.")
    pairs, reference = _pairs(runs, oracles, before, after)
    if forget_set is not None:
        check_oracles(oracles, forget_set)
    available = ("train", "test") if forget_set is None else ("train", "test", "forget", "retain")
    settings = BarrierSettings(match, tuple(dict.fromkeys(on or available)), points, rounds, examples, seed)
    barriers = barriers_of(
        pairs,
        reference,
        forget_set,
        settings,
        cache=out,
        progress=lambda done, place, places: progress(done + place / places, len(pairs)),
    )
    return BarrierComparison(barriers, match, None if forget_set is None else forget_set.name)


def _pairs(
    runs: Sequence[Run], oracles: Sequence[Run], before: Sequence[Run], after: Sequence[Run]
) -> tuple[list[Pair], Run]:
    """The pairs to compare, and the run whose data they are compared on."""
    if oracles:
        if runs or not (before or after):
            raise InputError("With `oracles`, give the models as `before` and `after`, and no `runs`.")
        return oracle_pairs(before, after, oracles), [*before, *after][0]
    if len(runs) != 2 or before or after:
        raise InputError(
            f"Expected two `runs`, or `oracles` with `before` and `after`; got {len(runs)} and no oracles."
        )
    a, b = runs
    return [Pair("pair", a, b)], a


def _curve(barrier: Barrier) -> dict[str, Any]:
    return {
        "barrier": barrier.value,
        "place": barrier.place,
        "places": barrier.places.tolist(),
        "losses": barrier.losses.tolist(),
        "rise": barrier.rise.tolist(),
    }
