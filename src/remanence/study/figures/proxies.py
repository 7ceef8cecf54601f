"""Cheaper scores against the privacy loss: the paper's figure on proxies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from remanence.report import proxies_figure
from remanence.scores import PROXIES
from remanence.study.durations import spearman, spread
from remanence.study.graph import Graph
from remanence.study.results import Agreement, Parts, Result, Table, Verdict, Wanted

_STRONG = 0.5
_BEST = "gradient_norm_mean"


def wanted(graph: Graph) -> Wanted:
    """The scores of every training run."""
    return [({"role": "score", "seed": seed}, graph.score(seed)) for seed in range(graph.study.seeds)]


def make(parts: Parts, settings: Mapping[str, Any]) -> Result:
    """Rank correlations over seeds; the picture is of the first."""
    tables = {role["seed"]: folder.tensors("scores") for role, folder in parts.all("score")}
    names = tuple(settings["score"]["proxies"]) or PROXIES
    found = {
        name: [
            spearman(each["privacy_loss"].tolist(), each[name].tolist()) or 0.0 for each in tables.values()
        ]
        for name in names
    }
    first = next(iter(tables.values()))
    drawn = proxies_figure(
        first["privacy_loss"],
        {name: first[name] for name in names},
        {name: float(np.mean(each)) for name, each in found.items()},
    )
    rows = tuple((name.replace("_", " "), spread(each)) for name, each in found.items())
    return Result(
        numbers={"spearman": found},
        figures={"proxies": drawn},
        verdicts=[_all_correlate(found), _mean_is_best(found)],
        tables={"Rank correlation with the privacy loss": Table(("proxy", "Spearman"), rows)},
        measurements=[
            {"metric": "spearman", "proxy": name, "seed": seed, "value": value}
            for name, each in found.items()
            for seed, value in zip(tables, each, strict=True)
        ],
    )


def _all_correlate(found: Mapping[str, list[float]]) -> Verdict:
    means = {name: float(np.mean(each)) for name, each in found.items()}
    weakest = min(means, key=means.__getitem__)
    agreement: Agreement = (
        "agrees" if means[weakest] >= _STRONG else "disagrees" if means[weakest] <= 0 else "undecided"
    )
    return Verdict(
        "All proxies correlate strongly with the privacy loss.",
        f"the weakest is {weakest.replace('_', ' ')}, Spearman {spread(found[weakest])}",
        agreement,
        f"agrees when every mean Spearman correlation is at least {_STRONG}; disagrees when one is not positive",
    )


def _mean_is_best(found: Mapping[str, list[float]]) -> Verdict:
    if _BEST not in found:
        return Verdict(
            "The best proxy is the average gradient norm.", "it was not asked for", "undecided", ""
        )
    means = {name: float(np.mean(each)) for name, each in found.items()}
    best = max(means, key=means.__getitem__)
    wins = np.mean([found[best][i] > found[_BEST][i] for i in range(len(found[_BEST]))])
    agreement: Agreement = "agrees" if best == _BEST else "disagrees" if wins == 1 else "undecided"
    return Verdict(
        "The best proxy is the gradient norm averaged over training.",
        f"the best is {best.replace('_', ' ')} ({spread(found[best])}); the averaged norm has {spread(found[_BEST])}",
        agreement,
        "agrees when its mean correlation is the largest; disagrees when another one's is larger with every seed",
    )
