"""Forget sets of several sizes: does the separation of easy and hard hold?"""

from __future__ import annotations

from dataclasses import replace

from remanence.study.figures import times
from remanence.study.paired_times import Gap, shown
from remanence.study.results import FigureSettings, Parts, Result, Verdict
from remanence.study.significance import paired_test
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
    narrower = [
        _narrower(middle, largest) for middle, largest in zip(gaps[sizes[-2]], gaps[sizes[-1]], strict=True)
    ]
    return Verdict(
        f"For very large forget sets the separation of easy and hard diminishes.{which}",
        "; ".join(
            f"{size}: hardest minus easiest {shown(differences)} epochs"
            for size, differences in known.items()
        ),
        "by how much the gap between hardest and easiest is smaller at the largest size than at the next, for "
        "every seed; agrees when a sign-flip test over seeds shows it above 0 (p < 0.05), disagrees when the "
        "test shows it below 0 (p < 0.05); undecided otherwise. A seed with a run that did not reach the target "
        "counts as 0",
        paired_test(narrower, "epochs by which the gap narrows"),
    )


def _narrower(middle: Gap | None, largest: Gap | None) -> float:
    """By how much the gap at the largest size is smaller; 0 where one of them is not known exactly."""
    if middle is None or largest is None or middle.open or largest.open:
        return 0.0
    return middle.value - largest.value
