"""The hardest examples by several scores: whose take longest to unlearn?"""

from __future__ import annotations

from collections.abc import Sequence

from remanence.report.study_figures import bars_figure
from remanence.study.graph import ForgetChoice, Graph
from remanence.study.paired_times import gap, gap_score, spread_of_times
from remanence.study.results import FigureSettings, Parts, Result, Table, Verdict, Wanted
from remanence.study.significance import all_hold, paired_test
from remanence.study.unlearning_times import Timed, timed, wanted_times

PRIVACY_LOSS = "privacy_loss"
_RULE = (
    "by how much longer the set by privacy loss takes than by another score, for every seed; agrees when a "
    "sign-flip test over seeds shows it above 0 for each other score (p < 0.05 for all), disagrees when the "
    "test shows it below 0 for one of them (p < 0.05 after multiplication by their number); undecided "
    "otherwise. Equal times and pairs whose order is not known count as 0; which of two times is longer is "
    "known only if the shorter one was reached"
)


def wanted(graph: Graph) -> Wanted:
    """The hardest so many by every score, for every size."""
    study = graph.study
    scores = (PRIVACY_LOSS, *study.score.proxies)
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
        name: {run.role["seed"]: run.duration for run in _of(runs, metric, size, name)} for name in scores
    }
    own = times[PRIVACY_LOSS]
    tests = [
        paired_test(
            [gap_score(gap(own[seed], other[seed])) for seed in other],
            f"epochs longer than by {name.replace('_', ' ')}",
        )
        for name, other in times.items()
        if name != PRIVACY_LOSS
    ]
    saw = "; ".join(
        f"{name.replace('_', ' ')} {spread_of_times(list(other.values()))}" for name, other in times.items()
    )
    claim = f"The {size} hardest by privacy loss take longer to unlearn than by other scores, by {metric.upper()}."
    return Verdict(claim, f"epochs: {saw}", _RULE, all_hold(tests) if tests else None)


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
    return Table(("metric", "size", "score", "epochs", "seeds that reached the target"), tuple(rows))
