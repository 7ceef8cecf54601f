"""Forget sets of several sizes: does the separation of easy and hard hold?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from remanence.study.figures import times
from remanence.study.paired_times import Gap, shown
from remanence.study.results import Agreement, FigureSettings, Parts, Result, Verdict
from remanence.study.unlearning_times import Timed, hardest_minus_easiest, timed

wanted = times.wanted


def make(parts: Parts, settings: FigureSettings) -> Result:
    """As for times, with a word on the largest size."""
    result = times.make(parts, settings)
    runs = list(timed(parts, settings.metrics[:1], settings))
    lines: dict[tuple[float, str], list[Timed]] = {}
    for run in runs:
        lines.setdefault((run.role["noise"], run.role["method"]), []).append(run)
    names = {(noise, method): f" Here: {method}, σ = {noise:g}." for noise, method in lines}
    faded = [_fades(group, names[key] if len(lines) > 1 else "") for key, group in lines.items()]
    return replace(result, verdicts=[*result.verdicts, *faded])


def _fades(runs: list[Timed], which: str = "") -> Verdict:
    sizes = sorted({run.role["size"] for run in runs})
    gaps = {size: hardest_minus_easiest(run for run in runs if run.role["size"] == size) for size in sizes}
    known = {
        size: [difference for difference in differences if difference is not None]
        for size, differences in gaps.items()
    }
    return Verdict(
        f"For very large forget sets the separation of easy and hard diminishes.{which}",
        "; ".join(
            f"{size}: hardest minus easiest {shown(differences)} epochs"
            for size, differences in known.items()
        ),
        _diminishes(gaps[sizes[-2]], gaps[sizes[-1]]),
        "agrees when the gap at the largest size is below that of the next by more than its spread over seeds, "
        "disagrees when it is above by as much; undecided otherwise, where one of these runs had not got there (what "
        "was cut off is no gap), and with one seed",
    )


def _diminishes(middle: Sequence[Gap | None], largest: Sequence[Gap | None]) -> Agreement:
    if any(difference is None or difference.open for difference in (*middle, *largest)) or len(middle) < 2:
        return "undecided"
    before, after = (
        [difference.value for difference in differences if difference is not None]
        for differences in (middle, largest)
    )
    change, usual = float(np.mean(after) - np.mean(before)), float(np.std(before, ddof=1))
    return "agrees" if change < -usual else "disagrees" if change > usual else "undecided"
