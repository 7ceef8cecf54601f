"""Cheaper scores against the privacy loss: the paper's figure on proxies."""

from __future__ import annotations

from collections.abc import Mapping

from remanence.report import proxies_figure
from remanence.scores import PROXIES
from remanence.study.correlations import Correlations, known, mean_of, shown, spearman
from remanence.study.graph import Graph
from remanence.study.results import FigureSettings, Parts, Result, Table, Verdict, Wanted
from remanence.study.significance import all_hold, paired_test, threshold_test

_STRONG = 0.5
_BEST = "gradient_norm_mean"


def wanted(graph: Graph) -> Wanted:
    """The scores of every training run."""
    return [({"role": "score", "seed": seed}, graph.score(seed)) for seed in graph.study.seed_numbers]


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
    by_seed = {name: values for name, seeds in correlations.items() if (values := known(seeds)) is not None}
    undefined = [name.replace("_", " ") for name in correlations if name not in by_seed]
    claim = "All proxies correlate strongly with the privacy loss."
    rule = (
        f"strongly means a Spearman correlation above {_STRONG}, stated beforehand; agrees when a sign-flip "
        f"test over seeds "
        "shows that for every proxy (p < 0.05 for all), disagrees when it shows one below (p < 0.05 after "
        "multiplication by their number); undecided otherwise, and where a correlation is undefined"
    )
    if undefined or not by_seed:
        return Verdict(claim, f"undefined for {', '.join(undefined)}", rule)
    weakest = min(by_seed, key=lambda name: sum(by_seed[name]))
    tests = [
        threshold_test(values, _STRONG, f"Spearman correlation of {name.replace('_', ' ')}")
        for name, values in by_seed.items()
    ]
    saw = f"the weakest is {weakest.replace('_', ' ')}, Spearman {shown(*correlations[weakest])}"
    return Verdict(claim, saw, rule, all_hold(tests))


def _mean_is_best(correlations: Mapping[str, Correlations]) -> Verdict:
    claim = "The best proxy is the gradient norm averaged over training."
    rule = (
        "by how much its correlation is larger than another proxy's, for every seed; agrees when a sign-flip "
        "test over seeds shows it above 0 for each other proxy (p < 0.05 for all), disagrees when it shows it "
        "below 0 for one of them (p < 0.05 after multiplication by their number); undecided otherwise"
    )
    by_seed = {name: values for name, seeds in correlations.items() if (values := known(seeds)) is not None}
    if _BEST not in by_seed:
        why = "its correlation is undefined" if _BEST in correlations else "it was not computed"
        return Verdict(claim, why, rule)
    best = max(by_seed, key=lambda name: sum(by_seed[name]))
    tests = [
        paired_test(
            [own - other for own, other in zip(by_seed[_BEST], values, strict=True)],
            f"Spearman correlation minus that of {name.replace('_', ' ')}",
        )
        for name, values in by_seed.items()
        if name != _BEST
    ]
    return Verdict(
        claim,
        f"the best is {best.replace('_', ' ')} ({shown(*correlations[best])}); the averaged norm has "
        f"{shown(*correlations[_BEST])}",
        rule,
        all_hold(tests) if tests else None,
    )
