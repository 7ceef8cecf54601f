"""The demo: times to unlearn by difficulty, the curves behind them, and the proxies, for one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from remanence.experiments import duration_interval, read_curve, summarize
from remanence.report.statistics import standard_deviation
from remanence.study.correlations import mean_of
from remanence.study.figures import curves, proxies, times
from remanence.study.graph import Graph
from remanence.study.results import FigureSettings, Parts, Result, Wanted
from remanence.study.unlearning_times import Timed, by_set, ordered_by_loss, rank_agreement, timed


def wanted(graph: Graph) -> Wanted:
    """The stages of the figures it combines, and the choice of the learning rate."""
    tuned: Wanted = [
        ({"role": "tuned", "method": method}, graph.tuned(method))
        for method in graph.study.unlearn.methods
        if graph.learning_rates(method)
    ]
    return [*times.wanted(graph), *proxies.wanted(graph), *tuned]


def make(parts: Parts, settings: FigureSettings) -> Result:
    """The three figures, and all numbers that the page shows."""
    combined = [figure.make(parts, settings) for figure in (times, curves, proxies)]
    runs = list(timed(parts, settings.metrics, settings))
    status = next(folder for _, folder in parts.all("score")).document("status")
    return Result(
        numbers={
            "bands": [_band(parts, settings, group) for _, group in by_set(runs)],
            "spearman": {metric: _agreement(runs, metric) for metric in settings.metrics},
            "proxies": combined[2].numbers["spearman"],
            "tuning": {role["method"]: folder.document("choice") for role, folder in parts.all("tuned")},
            **status,
        },
        figures={name: figure for result in combined for name, figure in result.figures.items()},
        verdicts=[*combined[0].verdicts, *combined[2].verdicts],
        tables={title: table for result in combined for title, table in result.tables.items()},
        measurements=combined[0].measurements,
    )


def _agreement(runs: Sequence[Timed], metric: str) -> float | None:
    """Rank agreement of privacy loss and time, on average over seeds; None where it is undefined for one."""
    by_seed = ordered_by_loss(run for run in runs if run.metric == metric)
    return mean_of([rank_agreement(seed) for seed in by_seed])


def _band(parts: Parts, settings: FigureSettings, runs: Sequence[Timed]) -> dict[str, Any]:
    """Everything about one forget set, over metrics and seeds."""
    name = runs[0].role["set"]
    losses = [run.loss for run in runs if run.metric == settings.metrics[0]]
    return {
        "name": name,
        "mean_privacy_loss": float(np.mean(losses)),
        "sd_privacy_loss": standard_deviation(losses),
        "epochs_to_unlearn": {
            metric: _times([run for run in runs if run.metric == metric]) for metric in settings.metrics
        },
        "oracle": {metric: _oracles(parts, name, metric) for metric in settings.metrics},
        "curves": {
            metric: [read_curve(folder, metric)[1] for _, folder in parts.all("unlearned", set=name)]
            for metric in settings.metrics
        },
    }


def _times(runs: Sequence[Timed]) -> dict[str, Any]:
    durations = [run.duration for run in runs]
    return asdict(summarize(durations)) | {
        "interval": duration_interval(durations, resolution=max(run.resolution for run in runs)),
        "by_seed": [{"epochs": duration.value, "reached": duration.reached} for duration in durations],
        "limit": max(run.limit for run in runs),
    }


def _oracles(parts: Parts, name: str, metric: str) -> dict[str, float]:
    values = [read_curve(folder, metric)[1][-1] for _, folder in parts.all("oracle", set=name)]
    return {"mean": float(np.mean(values)), "sd": standard_deviation(values)}
