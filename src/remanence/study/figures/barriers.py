"""Loss barriers to the oracle before and after unlearning, beside those between oracles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from remanence.report import human
from remanence.report.study_figures import barriers_figure
from remanence.study.correlations import correlates, shown, spearman
from remanence.study.graph import Graph
from remanence.study.paired_times import spread
from remanence.study.results import Agreement, FigureSettings, Parts, Result, Table, Verdict, Wanted

KINDS = ("before", "after", "baseline")


def wanted(graph: Graph) -> Wanted:
    """Every seed's model against the oracle of its number, and every pair of oracles."""
    study = graph.study
    wanted_: Wanted = []
    method = study.unlearn.methods[0]
    for choice in graph.bands(study.forget.sizes[0]):
        facts = {"set": choice.way}
        wanted_.append(({"role": "forget", **facts}, graph.forget(choice)))
        for seed in range(study.seeds):
            oracle = graph.oracle(choice, seed % study.audit.oracles)
            ends = {"before": graph.train(seed), "after": graph.unlearned(choice, seed, method)}
            for kind, model in ends.items():
                role = {"role": "barrier", "kind": kind, "seed": seed, **facts}
                wanted_.append(
                    (role, graph.barrier(oracle, model, choice, f"{kind}, {choice.label}, {seed}"))
                )
        for a, b in combinations(range(study.audit.oracles), 2):
            role = {"role": "barrier", "kind": "baseline", "seed": a, "other": b, **facts}
            ends_ = graph.oracle(choice, a), graph.oracle(choice, b)
            wanted_.append((role, graph.barrier(*ends_, choice, f"oracles {a}, {b}, {choice.label}")))
    return wanted_


def make(parts: Parts, settings: FigureSettings) -> Result:
    """One panel a subset of the data."""
    names = parts.values("forget", "set")
    losses = [folder.document("forget_set")["mean_privacy_loss"] for _, folder in parts.all("forget")]
    rows = [
        {**{key: role.get(key, "") for key in ("kind", "set", "seed", "other")}, **row}
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
    verdicts = [verdict for subset in subsets for verdict in _verdicts(subset, barriers[subset], losses)]
    return Result(
        numbers={"mean_privacy_loss": losses, "barriers": barriers},
        figures={"barriers": barriers_figure(losses, barriers)},
        verdicts=verdicts,
        tables={f"Barriers on {subset}": _table(names, losses, barriers[subset]) for subset in subsets},
        measurements=rows,
    )


def _verdicts(
    subset: str, barriers: Mapping[str, Sequence[Sequence[float]]], losses: Sequence[float]
) -> list[Verdict]:
    before, after, base = ([value for values in barriers[kind] for value in values] for kind in KINDS)
    grows = spearman(losses, [float(np.mean(values)) for values in barriers["before"]])
    falls = (np.asarray(barriers["before"]) - np.asarray(barriers["after"])).mean(axis=0).tolist()
    return [
        Verdict(
            f"After unlearning the barrier to an oracle is what it is between oracles ({subset}).",
            f"after {spread(after)}, between oracles {spread(base)}",
            _alike(after, base),
            "agrees when the means differ by at most two standard deviations of the oracles' barriers; undecided where "
            "there are too few oracles for that",
        ),
        Verdict(
            f"Unlearning lowers the barrier ({subset}).",
            f"before {spread(before)}, after {spread(after)}; lower by {spread(falls)} over seeds",
            _lowers(falls),
            "agrees when the mean over forget sets is lower after than before by more than its spread over seeds, "
            "disagrees when it is higher by as much; undecided otherwise, and with one seed",
        ),
        Verdict(
            f"Before unlearning, harder forget sets have larger barriers ({subset}).",
            f"Spearman of mean barrier and mean privacy loss {shown(grows)}",
            correlates(grows, 0.5),
            "agrees when Spearman is at least 0.5, disagrees when it is not positive",
        ),
    ]


def _alike(after: Sequence[float], base: Sequence[float]) -> Agreement:
    if len(base) < 2:
        return "undecided"
    near = 2 * max(float(np.std(base, ddof=1)), 1e-12)
    return "agrees" if abs(np.mean(after) - np.mean(base)) <= near else "disagrees"


def _lowers(falls: Sequence[float]) -> Agreement:
    """By how much the barriers fell, a number a seed."""
    if len(falls) < 2:
        return "undecided"
    mean, usual = float(np.mean(falls)), float(np.std(falls, ddof=1))
    return "agrees" if mean > usual else "disagrees" if mean < -usual else "undecided"


def _table(
    names: Sequence[str], losses: Sequence[float], barriers: Mapping[str, Sequence[Sequence[float]]]
) -> Table:
    rows = tuple(
        (name, human(losses[i]), *(spread(barriers[kind][i]) for kind in KINDS))
        for i, name in enumerate(names)
    )
    return Table(("forget set", "mean privacy loss", "before", "after", "between oracles"), rows)
