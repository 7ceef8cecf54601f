"""Group losses across the bands: the paper's form of the bound, and the coupled one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from remanence.report import human
from remanence.report.study_figures import group_figure
from remanence.study.durations import spearman
from remanence.study.graph import Graph
from remanence.study.results import Agreement, Parts, Result, Table, Verdict, Wanted

_FORMS = {
    "independent": "independent batches (the paper)",
    "coupled": "coupled batches",
    "upper": "its upper bound",
}


def wanted(graph: Graph) -> Wanted:
    """One set of estimates for all bands, and each band's mean loss."""
    choices = graph.bands(graph.study.forget.sizes[0])
    sets: Wanted = [({"role": "forget", "set": each.way}, graph.forget(each)) for each in choices]
    return [*sets, ({"role": "group"}, graph.group(choices))]


def make(parts: Parts, settings: Mapping[str, Any]) -> Result:
    """A line a form, its spread over estimates shaded; at the first noise level."""
    losses = [folder.document("forget_set")["mean_privacy_loss"] for _, folder in parts.all("forget")]
    names = parts.values("forget", "set")
    rows = parts.one("group").rows("losses")
    sigma = rows[0]["sigma"]
    found = {
        form: [
            [row["value"] for row in rows if (row["form"], row["set"], row["sigma"]) == (form, i, sigma)]
            for i in range(len(names))
        ]
        for form in _FORMS
    }
    return Result(
        numbers={"mean_privacy_loss": losses, "sigma": sigma, "group_loss": found},
        figures={"group": group_figure(losses, {_FORMS[form]: each for form, each in found.items()})},
        verdicts=[_blind(found["independent"], losses), _sees(found["coupled"], losses)],
        tables={"Group loss": _table(names, losses, found)},
        measurements=[{**row, "set": names[row["set"]]} for row in rows],
    )


def _blind(found: Sequence[Sequence[float]], losses: Sequence[float]) -> Verdict:
    means = [float(np.mean(each)) for each in found]
    ratio = max(means) / max(min(means), 1e-300)
    within = float(np.mean([np.std(each) for each in found]))
    correlation = spearman(losses, means)
    follows = correlation is not None and correlation >= 0.9 and ratio > 2
    agreement: Agreement = "disagrees" if follows else "agrees"
    return Verdict(
        "The group bound of the paper does not tell forget sets of different difficulty apart.",
        f"its means differ by a factor of {ratio:.2g} across the bands (spread over estimates {human(within)}), "
        f"Spearman with the mean privacy loss {_shown(correlation)}",
        agreement,
        "disagrees when it follows the mean privacy loss (Spearman at least 0.9) by more than a factor of 2",
    )


def _sees(found: Sequence[Sequence[float]], losses: Sequence[float]) -> Verdict:
    means = [float(np.mean(each)) for each in found]
    correlation = spearman(losses, means)
    agreement: Agreement = (
        "agrees"
        if correlation is not None and correlation >= 0.9
        else "disagrees"
        if (correlation or 0) <= 0
        else "undecided"
    )
    return Verdict(
        "Not in the paper: with coupled batches the group loss follows the difficulty of the set.",
        f"Spearman with the mean privacy loss {_shown(correlation)}; from {human(means[0])} to {human(means[-1])}",
        agreement,
        "agrees when Spearman is at least 0.9, disagrees when it is not positive",
    )


def _shown(correlation: float | None) -> str:
    return "undefined" if correlation is None else f"{correlation:.2f}"


def _table(
    names: Sequence[str], losses: Sequence[float], found: Mapping[str, Sequence[Sequence[float]]]
) -> Table:
    rows = tuple(
        (
            name,
            human(losses[i]),
            *(
                f"{human(float(np.mean(each[i])))} ± {human(float(np.std(each[i])))}"
                if each[i]
                else "infinite"
                for each in found.values()
            ),
        )
        for i, name in enumerate(names)
    )
    return Table(("forget set", "mean privacy loss", *_FORMS.values()), rows)
