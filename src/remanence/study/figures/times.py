"""Time to unlearn against privacy loss: by metric, noise level, method or size of the forget set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remanence.experiments import summarize
from remanence.report import human
from remanence.report.study_figures import Point, Series, times_figure
from remanence.study.graph import Graph
from remanence.study.paired_times import spread_of_times
from remanence.study.results import FigureSettings, Parts, Result, Table, Wanted
from remanence.study.times_beside import beside_tables
from remanence.study.unlearning_times import Timed, by_set, rising, timed, wanted_times


def wanted(graph: Graph) -> Wanted:
    """Bands of every size, at every noise level, by every method."""
    study = graph.study
    graphs = (
        [(0.0, graph)] if not study.noises else [(level, graph.with_noise(level)) for level in study.noises]
    )
    return [
        entry
        for noise, noisy in graphs
        for size in study.forget.sizes
        for method in study.unlearn.methods
        for entry in wanted_times(noisy, noisy.bands(size), method, noise)
    ]


def make(parts: Parts, settings: FigureSettings) -> Result:
    """One line for each metric, noise level, method and size."""
    runs = list(timed(parts, settings.metrics, settings))
    series = _series(runs)
    verdicts = [
        rising(group, f"{settings.claim} Here: {name}.")
        for name, group in series.items()
        if group[0].role["method"] not in settings.references
    ]
    drawn = times_figure([_drawn(name, group) for name, group in series.items()])
    return Result(
        numbers={"durations": [run.row() for run in runs]},
        figures={"times": drawn},
        verdicts=verdicts,
        tables={"Epochs to unlearn": _table(series), **beside_tables(parts, settings, series)},
        measurements=[run.row() for run in runs],
    )


def _series(runs: Sequence[Timed]) -> dict[str, list[Timed]]:
    """Runs by what tells them apart; what is the same for all is not named."""
    marks = [_marks(run) for run in runs]
    telling = [key for key in marks[0] if len({mark[key] for mark in marks}) > 1] or ["metric"]
    series: dict[str, list[Timed]] = {}
    for run, mark in zip(runs, marks, strict=True):
        series.setdefault(", ".join(mark[key] for key in telling), []).append(run)
    return series


def _marks(run: Timed) -> dict[str, str]:
    noise = run.role["noise"]
    return {
        "noise": "SGD" if noise == 0 else f"σ = {noise:g}",
        "size": f"{run.role['size']} examples",
        "method": run.role["method"].replace("_", " "),
        "metric": run.metric.upper(),
    }


def _drawn(name: str, runs: Sequence[Timed]) -> Series:
    points = []
    for loss, group in by_set(runs):
        durations = [run.duration for run in group]
        points.append(Point(loss, summarize(durations).median, [(d.value, d.reached) for d in durations]))
    return Series(name, points, max(run.limit for run in runs))


def _table(series: Mapping[str, Sequence[Timed]]) -> Table:
    rows = []
    for name, runs in series.items():
        for loss, group in by_set(runs):
            durations = [run.duration for run in group]
            rows.append(
                (
                    name,
                    str(group[0].role["set"]),
                    human(loss),
                    spread_of_times(durations),
                    f"{sum(duration.reached for duration in durations)} of {len(durations)}",
                )
            )
    header = ("series", "forget set", "mean privacy loss", "epochs", "seeds that reached the target")
    return Table(header, tuple(rows))
