"""Loss barriers to the oracle before and after unlearning, beside those between oracles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from remanence.report import human
from remanence.report.study_figures import barriers_figure
from remanence.study.correlations import kendall, shown, spearman
from remanence.study.graph import ForgetChoice, Graph
from remanence.study.paired_times import spread
from remanence.study.results import FigureSettings, Parts, Result, Table, Verdict, Wanted
from remanence.study.significance import ClaimTest, paired_test, ratio_equivalence_test, sign_flip

MARGIN = 0.25
"""Barriers that differ by less than this share count as alike; stated before any was measured."""
KINDS = ("before", "after", "baseline")


def wanted(graph: Graph) -> Wanted:
    """Every seed's model against an oracle, and oracles against each other.

    If every seed has its own forget sets, it also has its own two oracles. Otherwise all seeds share the oracles: a
    model is measured against the oracle of its number, and every pair of oracles is measured.
    """
    study = graph.study
    wanted_: Wanted = []
    for choice in graph.bands(study.forget.sizes[0]):
        for seed in sorted({graph.scored_by(seed) for seed in study.seed_numbers}):
            wanted_.append(({"role": "forget", "set": choice.way}, graph.forget(choice, seed)))
            pairs = [(0, 1)] if study.forget.per_seed else combinations(range(study.audit.oracles), 2)
            for a, b in pairs:
                role = {"role": "barrier", "kind": "baseline", "seed": seed, "first": a, "other": b}
                ends = graph.oracle(choice, a, seed), graph.oracle(choice, b, seed)
                title = f"oracles {a}, {b}, {choice.label}, {seed}"
                wanted_.append((role | {"set": choice.way}, graph.barrier(*ends, choice, seed, title)))
        for number, seed in enumerate(study.seed_numbers):
            wanted_ += _to_oracle(graph, choice, seed, 0 if study.forget.per_seed else number)
    return wanted_


def _to_oracle(graph: Graph, choice: ForgetChoice, seed: int, number: int) -> Wanted:
    """The barriers of one seed's model to an oracle, before and after unlearning."""
    oracle = graph.oracle(choice, number % graph.study.audit.oracles, seed)
    method = graph.study.unlearn.methods[0]
    ends = {"before": graph.train(seed), "after": graph.unlearned(choice, seed, method)}
    return [
        (
            {"role": "barrier", "kind": kind, "seed": seed, "set": choice.way},
            graph.barrier(oracle, model, choice, seed, f"{kind}, {choice.label}, {seed}"),
        )
        for kind, model in ends.items()
    ]


def make(parts: Parts, settings: FigureSettings) -> Result:
    """One panel a subset of the data."""
    names = parts.values("forget", "set")
    losses = [
        float(
            np.mean(
                [
                    folder.document("forget_set")["mean_privacy_loss"]
                    for _, folder in parts.all("forget", set=name)
                ]
            )
        )
        for name in names
    ]
    rows = [
        {**{key: role.get(key, "") for key in ("kind", "set", "seed", "first", "other")}, **row}
        for role, folder in parts.all("barrier")
        for row in folder.rows("barriers")
    ]
    subsets = settings.subsets
    barriers = {
        subset: {
            kind: [
                [
                    row["value"]
                    for row in rows
                    if (row["subset"], row["kind"], row["set"]) == (subset, kind, name)
                ]
                for name in names
            ]
            for kind in KINDS
        }
        for subset in subsets
    }
    per_seed = len(list(parts.all("forget", set=names[0]))) > 1
    verdicts = [
        verdict
        for subset in subsets
        for verdict in _verdicts(subset, barriers[subset], losses, per_seed=per_seed)
    ]
    return Result(
        numbers={"mean_privacy_loss": losses, "barriers": barriers},
        figures={"barriers": barriers_figure(losses, barriers)},
        verdicts=verdicts,
        tables={f"Barriers on {subset}": _table(names, losses, barriers[subset]) for subset in subsets},
        measurements=rows,
    )


def _verdicts(
    subset: str,
    barriers: Mapping[str, Sequence[Sequence[float]]],
    losses: Sequence[float],
    *,
    per_seed: bool = False,
) -> list[Verdict]:
    before, after, base = ([value for values in barriers[kind] for value in values] for kind in KINDS)
    grows = spearman(losses, [float(np.mean(values)) for values in barriers["before"]])
    falls = (np.asarray(barriers["before"]) - np.asarray(barriers["after"])).mean(axis=0).tolist()
    trends = [kendall(losses, seed) for seed in np.transpose(barriers["before"]).tolist()]
    return [
        Verdict(
            f"After unlearning the barrier to an oracle is what it is between oracles ({subset}).",
            f"before {spread(before)}, after {spread(after)}, between oracles {spread(base)}",
            f"alike means within {100 * MARGIN:g} %, stated beforehand; agrees when two one-sided sign-flip "
            f"tests show that the "
            "barrier after is alike (p < 0.05) and a third that the barrier before is larger (p < 0.05), so "
            "that the numbers can tell; disagrees when a test shows that it is not alike (p < 0.05); undecided "
            "otherwise. Where every seed has its own two oracles, a seed is one comparison; where seeds share "
            "oracles, these are divided into pairs, each compared with the models that were measured against "
            "them",
            _alike(barriers, per_seed),
        ),
        Verdict(
            f"Unlearning lowers the barrier ({subset}).",
            f"before {spread(before)}, after {spread(after)}; lower by {spread(falls)} over seeds",
            "by how much the barrier, averaged over forget sets, is lower after than before, for every seed; "
            "agrees when a sign-flip test over seeds shows it above 0 (p < 0.05), disagrees when it shows it "
            "below 0 (p < 0.05); undecided otherwise",
            paired_test(falls, "fall of the barrier, in nats"),
        ),
        Verdict(
            f"Before unlearning, harder forget sets have larger barriers ({subset}).",
            f"Spearman of mean barrier and mean privacy loss {shown(grows)}",
            "Kendall's tau of barrier and privacy loss over forget sets, for every seed; agrees when a "
            "sign-flip test over seeds shows it above 0 (p < 0.05), disagrees when it shows it below 0 (p < "
            "0.05); undecided otherwise",
            paired_test(trends, "Kendall's tau of barrier and privacy loss", limits=(-1.0, 1.0)),
        ),
    ]


def _alike(barriers: Mapping[str, Sequence[Sequence[float]]], per_seed: bool) -> ClaimTest | None:
    """Whether models are to oracles as oracles are to each other; the model before unlearning must not be.

    With two oracles per seed, each seed compares what separates its oracles with what separates one of them from its
    model. Barriers that share an oracle are not independent, so oracles that seeds share are divided into pairs: what
    separates the two of a pair is compared with what separates each of them from its model.
    """
    before, after, base = (np.asarray(barriers[kind]).mean(axis=0) for kind in KINDS)
    if per_seed:
        return _compared(before.tolist(), after.tolist(), base.tolist())
    oracles = round((1 + np.sqrt(1 + 8 * len(base))) / 2)
    place = {pair: i for i, pair in enumerate(combinations(range(oracles), 2))}
    pairs = [(a, a + 1) for a in range(0, min(oracles, len(after)) - 1, 2)]
    if not pairs:
        return None
    between = [float(base[place[pair]]) for pair in pairs]
    earlier, later = ([_of_pair(values, pair, oracles) for pair in pairs] for values in (before, after))
    return _compared(earlier, later, between)


def _compared(earlier: Sequence[float], later: Sequence[float], between: Sequence[float]) -> ClaimTest:
    """Alike after unlearning, and larger before it."""
    alike = ratio_equivalence_test(later, between, MARGIN, "relative difference of the barriers")
    was_larger = sign_flip(np.asarray(earlier) - (1 + MARGIN) * np.asarray(between))
    return replace(alike, p=max(alike.p, was_larger))


def _of_pair(by_seed: NDArray[np.float64], pair: tuple[int, int], oracles: int) -> float:
    """The mean barrier of the models that were measured against the two oracles: seed s against oracle s modulo O."""
    return float(np.mean([by_seed[oracle::oracles].mean() for oracle in pair]))


def _table(
    names: Sequence[str], losses: Sequence[float], barriers: Mapping[str, Sequence[Sequence[float]]]
) -> Table:
    rows = tuple(
        (name, human(losses[i]), *(spread(barriers[kind][i]) for kind in KINDS))
        for i, name in enumerate(names)
    )
    return Table(("forget set", "mean privacy loss", "before", "after", "between oracles"), rows)
