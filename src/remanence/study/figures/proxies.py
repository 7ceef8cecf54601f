"""Cheaper scores against the privacy loss: the paper's figure on proxies."""

from __future__ import annotations

from collections.abc import Mapping

from remanence.report import proxies_figure
from remanence.scores import PROXIES
from remanence.study.correlations import Correlations, correlates, mean_of, shown, spearman
from remanence.study.graph import Graph
from remanence.study.results import FigureSettings, Parts, Result, Table, Verdict, Wanted

_STRONG = 0.5
_BEST = "gradient_norm_mean"


def wanted(graph: Graph) -> Wanted:
    """The scores of every training run."""
    return [({"role": "score", "seed": seed}, graph.score(seed)) for seed in range(graph.study.seeds)]


def make(parts: Parts, settings: FigureSettings) -> Result:
    """Rank correlations over seeds; the picture is of the first."""
    tables = {role["seed"]: folder.tensors("scores") for role, folder in parts.all("score")}
    names = tuple(settings.proxies) or PROXIES
    correlations = {
        name: [spearman(table["privacy_loss"].tolist(), table[name].tolist()) for table in tables.values()]
        for name in names
    }
    first = next(iter(tables.values()))
    drawn = proxies_figure(
        first["privacy_loss"],
        {name: first[name] for name in names},
        {name: mean for name, values in correlations.items() if (mean := mean_of(values)) is not None},
    )
    rows = tuple((name.replace("_", " "), shown(*values)) for name, values in correlations.items())
    return Result(
        numbers={"spearman": correlations},
        figures={"proxies": drawn},
        verdicts=[_all_correlate(correlations), _mean_is_best(correlations)],
        tables={"Rank correlation with the privacy loss": Table(("proxy", "Spearman"), rows)},
        measurements=[
            {"metric": "spearman", "proxy": name, "seed": seed, "value": value}
            for name, values in correlations.items()
            for seed, value in zip(tables, values, strict=True)
        ],
    )


def _all_correlate(correlations: Mapping[str, Correlations]) -> Verdict:
    means = {name: mean for name, values in correlations.items() if (mean := mean_of(values)) is not None}
    weakest = min(means, key=means.__getitem__, default=None)
    undefined = [name.replace("_", " ") for name in correlations if name not in means]
    return Verdict(
        "All proxies correlate strongly with the privacy loss.",
        f"undefined for {', '.join(undefined)}"
        if undefined or weakest is None
        else f"the weakest is {weakest.replace('_', ' ')}, Spearman {shown(*correlations[weakest])}",
        correlates(None if undefined or weakest is None else means[weakest], _STRONG),
        f"agrees when every mean Spearman correlation is at least {_STRONG}; disagrees when one is not positive; "
        "undecided where one is undefined",
    )


def _mean_is_best(correlations: Mapping[str, Correlations]) -> Verdict:
    claim = "The best proxy is the gradient norm averaged over training."
    means = {name: mean for name, values in correlations.items() if (mean := mean_of(values)) is not None}
    if _BEST not in means:
        why = "its correlation is undefined" if _BEST in correlations else "it was not asked for"
        return Verdict(claim, why, "undecided", "")
    best = max(means, key=means.__getitem__)
    pairs = zip(correlations[best], correlations[_BEST], strict=True)
    wins = all(one is not None and other is not None and one > other for one, other in pairs)
    return Verdict(
        claim,
        f"the best is {best.replace('_', ' ')} ({shown(*correlations[best])}); the averaged norm has "
        f"{shown(*correlations[_BEST])}",
        "agrees" if best == _BEST else "disagrees" if wins else "undecided",
        "agrees when its mean correlation is the largest; disagrees when another one's is larger with every seed",
    )
