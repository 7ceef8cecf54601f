"""What is shown beside the times that decide: other times, retain accuracy, the oracles' level, and their trends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from remanence.experiments import Duration
from remanence.study.paired_times import spread, spread_of_times
from remanence.study.results import FigureSettings, Parts, Table
from remanence.study.significance import paired_test
from remanence.study.unlearning_times import Beside, Timed, by_set, ordered_by_loss, timed, trend

_CONTINUOUS = {"mia_confidence": "mia_auc"}
"""The companion of a metric that has no threshold."""
_OTHER_TIMES: dict[str, Callable[[Beside], Duration]] = {
    "settled until the end": lambda beside: beside.settled,
    "half of its own gap closed": lambda beside: beside.half_gap,
    "gap to the oracles before unlearning": lambda beside: Duration(abs(beside.oracle - beside.start), True),
}


def beside_tables(
    parts: Parts, settings: FigureSettings, series: Mapping[str, Sequence[Timed]]
) -> dict[str, Table]:
    """Two tables: by forget set, and the trend of each other statistic."""
    extended = dict(series)
    for metric, companion in _CONTINUOUS.items():
        if metric in settings.metrics and _measured(parts, companion):
            extended[f"{companion.upper()}, beside {metric.upper()}"] = list(
                timed(parts, [companion], settings)
            )
    return {"Beside the times": _by_set(extended), "Trend of other statistics": _trends(series, extended)}


def _measured(parts: Parts, metric: str) -> bool:
    _, folder = next(parts.all("unlearned"))
    return any(row["metric"] == metric for row in folder.rows("measurements"))


def _by_set(series: Mapping[str, Sequence[Timed]]) -> Table:
    rows = []
    for name, runs in series.items():
        for _, group in by_set(runs):
            beside = [run.beside for run in group if run.beside is not None]
            rates = sorted({entry.learning_rate for entry in beside})
            rows.append(
                (
                    name,
                    str(group[0].role["set"]),
                    spread_of_times([entry.settled for entry in beside]),
                    spread_of_times([entry.half_gap for entry in beside]),
                    f"{np.mean([entry.start for entry in beside]):.3f}",
                    spread([entry.oracle for entry in beside]),
                    f"{min(entry.lowest_retain for entry in beside):.3f}",
                    f"{np.mean([entry.last_retain for entry in beside]):.3f}",
                    ", ".join(f"{rate:g}" for rate in rates),
                )
            )
    header = (
        "series",
        "forget set",
        "settled, epochs",
        "half gap closed, epochs",
        "before",
        "oracles",
        "lowest retain accuracy",
        "retain accuracy at the end",
        "learning rate",
    )
    return Table(header, tuple(rows))


def _trends(primary: Mapping[str, Sequence[Timed]], extended: Mapping[str, Sequence[Timed]]) -> Table:
    rows = []
    for name, runs in extended.items():
        if name not in primary:
            rows.append((name, "first entry", *_trend(runs)))
        for statistic, value in _OTHER_TIMES.items():
            replaced = [replace(run, duration=value(run.beside)) for run in runs if run.beside is not None]
            rows.append((name, statistic, *_trend(replaced)))
    header = ("series", "statistic", "Kendall's tau with the privacy loss", "p for", "p against")
    return Table(header, tuple(rows))


def _trend(runs: Sequence[Timed]) -> tuple[str, str, str]:
    test = paired_test([trend(seed) for seed in ordered_by_loss(runs)], "tau", limits=(-1.0, 1.0))
    shown = f"{test.effect:.2f}" if test.effect is not None else "unknown"
    if test.interval is not None:
        shown += " ({:.2f} to {:.2f})".format(*test.interval)
    return shown, f"{test.p:.2g}", f"{test.p_against:.2g}"
