"""Group losses across the bands: the paper's form of the bound, and the coupled one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from remanence.report import human
from remanence.report.statistics import standard_deviation
from remanence.report.study_figures import group_figure
from remanence.study.correlations import shown, spearman
from remanence.study.graph import Graph
from remanence.study.results import FigureSettings, Parts, Result, Table, Verdict, Wanted
from remanence.study.significance import equivalence_test, rank_test

_FACTOR = 2.0
_FORMS = {
    "independent": "independent batches (the paper)",
    "coupled": "coupled batches",
    "upper": "its upper bound",
}


def wanted(graph: Graph) -> Wanted:
    """One set of estimates for all bands, and each band's mean loss."""
    choices = graph.bands(graph.study.forget.sizes[0])
    sets: Wanted = [
        ({"role": "forget", "set": choice.way}, graph.forget(choice, graph.study.scoring_seed))
        for choice in choices
    ]
    return [*sets, ({"role": "group"}, graph.group(choices))]


def make(parts: Parts, settings: FigureSettings) -> Result:
    """A line a form, its spread over estimates shaded; at the first noise level."""
    losses = [folder.document("forget_set")["mean_privacy_loss"] for _, folder in parts.all("forget")]
    names = parts.values("forget", "set")
    group = parts.one("group")
    rows, asked = group.rows("losses"), group.config()["params"]
    sigma = asked["sigmas"][0]
    estimates_by_set = {
        form: [
            [row["value"] for row in rows if (row["form"], row["set"], row["sigma"]) == (form, i, sigma)]
            for i in range(len(names))
        ]
        for form in _FORMS
    }
    # only finite estimates are stored: how many were infinite is what is missing
    estimates = {form: 1 if form == "upper" else asked["estimates"] for form in _FORMS}
    infinite = {
        form: [estimates[form] - len(values) for values in sets] for form, sets in estimates_by_set.items()
    }
    return Result(
        numbers={
            "mean_privacy_loss": losses,
            "sigma": sigma,
            "group_loss": estimates_by_set,
            "infinite": infinite,
        },
        figures={
            "group": group_figure(losses, {_FORMS[form]: values for form, values in estimates_by_set.items()})
        },
        verdicts=[
            _blind(estimates_by_set["independent"], infinite["independent"], losses),
            _sees(estimates_by_set["coupled"], infinite["coupled"], losses),
        ],
        tables={"Group loss": _table(names, losses, estimates_by_set, infinite)},
        measurements=[{**row, "set": names[row["set"]]} for row in rows],
    )


def _blind(
    estimates_by_set: Sequence[Sequence[float]], infinite: Sequence[int], losses: Sequence[float]
) -> Verdict:
    claim = "The group bound of the paper does not tell forget sets of different difficulty apart."
    rule = (
        f"apart means by a factor of more than {_FACTOR:g}, stated beforehand; agrees when two one-sided "
        f"sign-flip tests over "
        "estimates show that the hardest set is within that factor of the easiest (p < 0.05), disagrees when "
        "one shows that it is beyond (p < 0.05); undecided otherwise, and where an estimate is infinite. "
        "Estimates are repeated on one training run and say nothing about others"
    )
    if any(infinite):
        return Verdict(claim, _of_them(estimates_by_set, infinite), rule)
    means = [float(np.mean(values)) for values in estimates_by_set]
    ratio = max(means) / max(min(means), 1e-300)
    within = float(np.mean([standard_deviation(values) for values in estimates_by_set]))
    easiest, hardest = (estimates_by_set[int(place)] for place in (np.argmin(losses), np.argmax(losses)))
    logs = [
        float(np.log(max(hard, 1e-300) / max(easy, 1e-300)))
        for hard, easy in zip(hardest, easiest, strict=True)
    ]
    return Verdict(
        claim,
        f"its means differ by a factor of {ratio:.2g} across the bands (spread over estimates {human(within)}), "
        f"Spearman with the mean privacy loss {shown(spearman(losses, means))}",
        rule,
        equivalence_test(logs, float(np.log(_FACTOR)), "logarithm of hardest over easiest"),
    )


def _sees(
    estimates_by_set: Sequence[Sequence[float]], infinite: Sequence[int], losses: Sequence[float]
) -> Verdict:
    claim = "Not in the paper: with coupled batches the group loss follows the difficulty of the set."
    rule = (
        "Spearman correlation of group loss and privacy loss over forget sets; agrees when a permutation test "
        "over the sets shows it above 0 (p < 0.05), disagrees when it shows it below 0 (p < 0.05); undecided "
        "otherwise, and where an estimate is infinite"
    )
    if any(infinite):
        return Verdict(claim, _of_them(estimates_by_set, infinite), rule)
    means = [float(np.mean(values)) for values in estimates_by_set]
    correlation = spearman(losses, means)
    return Verdict(
        claim,
        f"Spearman with the mean privacy loss {shown(correlation)}; from {human(means[0])} to {human(means[-1])}",
        rule,
        rank_test(correlation, losses, means),
    )


def _of_them(estimates_by_set: Sequence[Sequence[float]], infinite: Sequence[int]) -> str:
    return f"{sum(infinite)} of {sum(map(len, estimates_by_set)) + sum(infinite)} estimates are infinite"


def _table(
    names: Sequence[str],
    losses: Sequence[float],
    estimates_by_set: Mapping[str, Sequence[Sequence[float]]],
    infinite: Mapping[str, Sequence[int]],
) -> Table:
    rows = tuple(
        (name, human(losses[i]), *(_cell(estimates_by_set[form][i], infinite[form][i]) for form in _FORMS))
        for i, name in enumerate(names)
    )
    return Table(("forget set", "mean privacy loss", *_FORMS.values()), rows)


def _cell(values: Sequence[float], infinite: int) -> str:
    if not values:
        return "infinite"
    mean = human(float(np.mean(values))) + (
        f" ± {human(standard_deviation(values))}" if len(values) > 1 else ""
    )
    return f"{mean} ({infinite} of {len(values) + infinite} infinite)" if infinite else mean
