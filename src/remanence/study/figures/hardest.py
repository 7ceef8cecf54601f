"""The hardest examples by several scores: whose take longest to unlearn?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remanence.report.study_figures import bars_figure
from remanence.study.graph import ForgetChoice, Graph
from remanence.study.paired_times import Gap, gap, longer_on_average, spread_of_times
from remanence.study.results import Agreement, FigureSettings, Parts, Result, Table, Verdict, Wanted
from remanence.study.unlearning_times import Timed, timed, wanted_times

OURS = "privacy_loss"
_RULE = (
    "agrees when with most seeds, and on average over those that tell, the set by privacy loss takes longer than by "
    "each other score; disagrees when another score's set takes longer with most seeds; undecided otherwise. Which "
    "of two times is longer is known only if the shorter one was reached"
)


def wanted(graph: Graph) -> Wanted:
    """The hardest so many by every score, for every size."""
    study = graph.study
    scores = (OURS, *study.score.proxies)
    return [
        entry
        for size in study.forget.sizes
        for method in study.unlearn.methods
        for entry in wanted_times(
            graph, [ForgetChoice("hardest", graph.size(size), score) for score in scores], method
        )
    ]


def make(parts: Parts, settings: FigureSettings) -> Result:
    """One group of bars a size, one panel a metric."""
    metrics = settings.metrics
    runs = list(timed(parts, metrics, settings))
    sizes, scores = parts.values("unlearned", "size"), parts.values("unlearned", "score")
    panels = {
        metric.upper(): {
            score: [
                [(run.duration.value, run.duration.reached) for run in _of(runs, metric, size, score)]
                for size in sizes
            ]
            for score in scores
        }
        for metric in metrics
    }
    return Result(
        numbers={"durations": [run.row() for run in runs]},
        figures={"hardest": bars_figure(panels, [f"{size} examples" for size in sizes], "epochs to unlearn")},
        verdicts=[_verdict(runs, metric, size, scores) for metric in metrics for size in sizes],
        tables={"Epochs to unlearn the hardest": _table(runs, metrics, sizes, scores)},
        measurements=[run.row() for run in runs],
    )


def _of(runs: Sequence[Timed], metric: str, size: int, score: str) -> list[Timed]:
    return [
        run
        for run in runs
        if run.metric == metric and run.role["size"] == size and run.role["score"] == score
    ]


def _verdict(runs: Sequence[Timed], metric: str, size: int, scores: Sequence[str]) -> Verdict:
    times = {
        score: {run.role["seed"]: run.duration for run in _of(runs, metric, size, score)} for score in scores
    }
    own = times[OURS]
    others = [
        [gap(own[seed], other[seed]) for seed in other] for score, other in times.items() if score != OURS
    ]
    agreement: Agreement = "undecided"
    if others and all(_longer(other) for other in others):
        agreement = "agrees"
    elif any(_share(other, longer=False) > 0.5 for other in others):
        agreement = "disagrees"
    saw = "; ".join(
        f"{score.replace('_', ' ')} {spread_of_times(list(other.values()))}" for score, other in times.items()
    )
    claim = f"The {size} hardest by privacy loss take longer to unlearn than by other scores, by {metric.upper()}."
    return Verdict(claim, f"epochs: {saw}", agreement, _RULE)


def _longer(gaps: Sequence[Gap | None]) -> bool:
    known = [difference for difference in gaps if difference is not None]
    return _share(gaps, longer=True) > 0.5 and longer_on_average(known) is True


def _share(gaps: Sequence[Gap | None], *, longer: bool) -> float:
    """Of all seeds, those with which ours is known to be longer, or shorter."""
    return float(
        np.mean(
            [
                difference is not None and (difference.value > 0 if longer else difference.value < 0)
                for difference in gaps
            ]
        )
    )


def _table(
    runs: Sequence[Timed], metrics: Sequence[str], sizes: Sequence[int], scores: Sequence[str]
) -> Table:
    rows = []
    for metric in metrics:
        for size in sizes:
            for score in scores:
                durations = [run.duration for run in _of(runs, metric, size, score)]
                rows.append(
                    (
                        metric.upper(),
                        str(size),
                        score.replace("_", " "),
                        spread_of_times(durations),
                        f"{sum(duration.reached for duration in durations)} of {len(durations)}",
                    )
                )
    return Table(("metric", "size", "score", "epochs", "seeds that got there"), tuple(rows))
