"""UA, RA, utility and MIA while unlearning, a line for each forget set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remanence.experiments import read_curve
from remanence.report.study_figures import Curve, curves_figure
from remanence.storage import Folder
from remanence.study.graph import Graph
from remanence.study.results import FigureSettings, Parts, Result, Verdict, Wanted
from remanence.study.significance import equivalence_test
from remanence.study.unlearning_times import epochs_of, rising, timed, wanted_times

_TITLES = {
    "ua": "UA: forget set misread",
    "ra": "RA: retain set read",
    "test": "utility: test set read",
    "mia_confidence": "MIA: forget set called unseen",
}
_FORGETTING = ("ua", "mia_confidence")


def wanted(graph: Graph) -> Wanted:
    """The bands of the first size, by the first method."""
    study = graph.study
    return wanted_times(graph, graph.bands(study.forget.sizes[0]), study.unlearn.methods[0])


def make(parts: Parts, settings: FigureSettings) -> Result:
    """One panel per metric."""
    metrics = settings.metrics
    sets = parts.values("unlearned", "set")
    panels = {
        _TITLES.get(name, name): [_curve(parts, name, name_of_set) for name_of_set in sets]
        for name in metrics
    }
    times = list(timed(parts, [name for name in metrics if name in _FORGETTING], settings))
    verdicts = [
        rising([run for run in times if run.metric == name], f"By {name.upper()}, harder sets take longer.")
        for name in metrics
        if name in _FORGETTING
    ] + [_similar(parts, name, sets, settings.tolerance) for name in metrics if name not in _FORGETTING]
    rows = [
        {"set": role["set"], "seed": role["seed"], "metric": name, "epoch": epoch, "value": value}
        for role, folder in parts.all("unlearned")
        for name in metrics
        for epoch, value in zip(epochs_of(folder, name), read_curve(folder, name)[1], strict=True)
    ]
    return Result(
        numbers={
            title: [{"set": line.name, "oracle": line.oracle} for line in curves]
            for title, curves in panels.items()
        },
        figures={"curves": curves_figure(panels)},
        verdicts=verdicts,
        measurements=rows,
    )


def _curve(parts: Parts, metric: str, name: str) -> Curve:
    folders = [folder for _, folder in parts.all("unlearned", set=name)]
    whole = [folder for folder in folders if folder.document("unlearning")["diverged"] is None]
    return Curve(
        name,
        epochs_of(whole[0], metric) if whole else [],
        [read_curve(folder, metric)[1] for folder in whole],
        float(np.mean([read_curve(folder, metric)[1][-1] for _, folder in parts.all("oracle", set=name)])),
    )


def _similar(parts: Parts, metric: str, sets: Sequence[str], tolerance: float) -> Verdict:
    def last(folder: Folder) -> float:
        return read_curve(folder, metric)[1][-1]

    ends = {name: [last(folder) for _, folder in parts.all("unlearned", set=name)] for name in sets}
    return _alike_ends(metric, list(ends.values()), tolerance)


def _alike_ends(metric: str, ends: Sequence[Sequence[float]], tolerance: float) -> Verdict:
    """Whether the last values of a metric, by forget set from easiest to hardest and by seed, are the same."""
    means = [float(np.mean(values)) for values in ends]
    easiest, hardest = ends[0], ends[-1]
    return Verdict(
        f"{_TITLES.get(metric, metric)}: about the same for easy and hard forget sets.",
        f"at the end the sets' means lie between {100 * min(means):.1f} % and {100 * max(means):.1f} %",
        f"the same means within {100 * tolerance:g} points, stated beforehand; agrees when two one-sided "
        f"sign-flip tests over "
        "seeds show that the easiest and the hardest set are (p < 0.05), disagrees when one shows that they are not "
        "(p < 0.05); undecided otherwise",
        equivalence_test(
            [hard - easy for hard, easy in zip(hardest, easiest, strict=True)],
            tolerance,
            "hardest minus easiest, as a share",
        ),
    )
