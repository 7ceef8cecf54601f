"""Farther to go or slower: which score predicts how single examples are forgotten. Not in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.report.study_figures import predictors_figure
from remanence.scores import PROXIES
from remanence.storage import Folder
from remanence.study.correlations import known, shown, spearman
from remanence.study.graph import ForgetChoice, Graph
from remanence.study.results import FigureSettings, Parts, Result, Table, Verdict, Wanted
from remanence.study.significance import ClaimTest, all_hold, paired_test, threshold_test

_CORRECTED = "pathwise"
_STABLE = 0.5
_LEAST_GAP = 1.0
"""Log-odds; an example that its oracles know nearly as well has nothing to be forgotten."""
_NAMES = {
    "pathwise": "privacy loss, path-wise",
    "printed": "privacy loss, as printed",
    "accountant": "accountant",
}
_TARGETS = {
    "gap": "gap to the oracles before unlearning",
    "half": "time to close half of the gap",
    "slower": "that time, at a fixed gap",
}
Rows = dict[str, dict[str, list[float | None]]]
"""Score -> target -> one correlation for each seed."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forgotten:
    """How the examples of one forget set were forgotten; only those with a gap.

    Args:
        ids: the examples.
        gap: log-odds before unlearning minus the mean of the oracles.
        half: steps until half of the gap is closed; one more than the last step where it never is.
    """

    ids: NDArray[Any]
    gap: Floats
    half: Floats


def wanted(graph: Graph) -> Wanted:
    """The scores of every run, and how a random forget set is forgotten by it."""
    study = graph.study
    choice = ForgetChoice("random", graph.size(study.forget.sizes[0]))
    return [
        entry
        for seed in study.seed_numbers
        for entry in (
            ({"role": "score", "seed": seed}, graph.score(seed)),
            ({"role": "compositions", "seed": seed}, graph.compositions(seed)),
            ({"role": "paths", "seed": seed}, graph.paths(choice, seed, study.unlearn.methods[0])),
        )
    ]


def make(parts: Parts, settings: FigureSettings) -> Result:
    """Rank correlations of every score with the gap and with the time, seed by seed."""
    seeds = parts.values("paths", "seed")
    scores = {seed: _scores(parts, seed) for seed in seeds}
    correlations: Rows = {name: {target: [] for target in _TARGETS} for name in (*_NAMES, *PROXIES)}
    for seed in seeds:
        forgotten = read_forgotten(parts.one("paths", seed=seed))
        for name, targets in correlations.items():
            _add(targets, _of(scores[seed], name, forgotten.ids), forgotten)
    stability = _stability([scores[seed] for seed in seeds])
    return Result(
        numbers={"spearman": correlations, "between_runs": stability},
        figures={"predictors": predictors_figure(_named(correlations), list(_TARGETS.values()))},
        verdicts=[
            _above(correlations, "gap", "Examples with a higher privacy loss have farther to go"),
            _above(correlations, "slower", "Examples with a higher privacy loss are slower"),
            _better(correlations),
            _stable(stability),
        ],
        tables={"Spearman correlation with each score": _table(correlations)},
        measurements=[
            {"score": name, "target": target, "seed": seed, "value": value}
            for name, targets in correlations.items()
            for target, values in targets.items()
            for seed, value in zip(seeds, values, strict=True)
        ],
    )


def read_forgotten(folder: Folder) -> Forgotten:
    """Gap and time of every example that has a gap."""
    tensors = folder.tensors("paths")
    oracle = tensors["oracles"].mean(axis=0)
    gap = tensors["model"][0] - oracle
    farther = gap >= _LEAST_GAP
    closed = tensors["model"] <= oracle + gap / 2
    steps = np.append(tensors["steps"], tensors["steps"][-1] + 1)
    half = steps[np.where(closed.any(axis=0), closed.argmax(axis=0), len(steps) - 1)]
    return Forgotten(tensors["ids"][farther], gap[farther], half[farther].astype(np.float64))


def _scores(parts: Parts, seed: int) -> dict[str, NDArray[np.float64]]:
    losses = parts.one("compositions", seed=seed).tensors("losses")
    proxies = parts.one("score", seed=seed).tensors("scores")
    return {**losses, **{name: proxies[name] for name in PROXIES}}


def _of(scores: Mapping[str, Floats], name: str, ids: NDArray[Any]) -> list[float]:
    """The scores of these examples, in their order."""
    order = np.argsort(scores["ids"])
    places = order[np.searchsorted(scores["ids"], ids, sorter=order)]
    values: list[float] = scores[name][places].tolist()
    return values


def _add(targets: dict[str, list[float | None]], score: Sequence[float], forgotten: Forgotten) -> None:
    gap, half = forgotten.gap.tolist(), forgotten.half.tolist()
    with_gap, with_half = spearman(score, gap), spearman(score, half)
    targets["gap"].append(with_gap)
    targets["half"].append(with_half)
    targets["slower"].append(partial(with_half, with_gap, spearman(half, gap)))


def partial(ab: float | None, ac: float | None, bc: float | None) -> float | None:
    """The rank correlation of a and b with c held fixed, from their three correlations."""
    if ab is None or ac is None or bc is None or max(abs(ac), abs(bc)) >= 1:
        return None
    return (ab - ac * bc) / float(np.sqrt((1 - ac**2) * (1 - bc**2)))


def _stability(runs: Sequence[Mapping[str, Floats]]) -> list[float | None]:
    """The rank correlation of the corrected losses of two runs, each run in one pair."""
    return [
        spearman(_of(first, _CORRECTED, second["ids"]), second[_CORRECTED].tolist())
        for first, second in zip(runs[::2], runs[1::2], strict=False)
    ]


def _above(correlations: Rows, target: str, claim: str) -> Verdict:
    values = correlations[_CORRECTED][target]
    test = None
    if (by_seed := known(values)) is not None:
        test = paired_test(by_seed, "Spearman correlation", limits=(-1.0, 1.0))
    return Verdict(
        f"Not in the paper: {claim} ({_TARGETS[target]}).",
        f"Spearman {shown(*values)} over the examples of a random forget set",
        "rank correlation over examples, for every seed; agrees when a sign-flip test over seeds shows it above 0 "
        "(p < 0.05), disagrees when it shows it below 0 (p < 0.05); undecided otherwise",
        test,
    )


def _better(correlations: Rows) -> Verdict:
    own = known(correlations[_CORRECTED]["slower"])
    others = {name: values for name in PROXIES if (values := known(correlations[name]["slower"])) is not None}
    tests: list[ClaimTest] = []
    if own is not None and len(others) == len(PROXIES):
        tests = [
            paired_test(
                [a - b for a, b in zip(own, values, strict=True)],
                f"Spearman correlation minus that of {name.replace('_', ' ')}",
            )
            for name, values in others.items()
        ]
    saw = "; ".join(
        f"{name.replace('_', ' ')} {shown(*correlations[name]['slower'])}" for name in (_CORRECTED, *PROXIES)
    )
    return Verdict(
        "Not in the paper: the corrected privacy loss predicts how slowly an example is forgotten better than every "
        "proxy.",
        saw,
        "by how much its correlation with the time at a fixed gap is larger than a proxy's, for every seed; agrees "
        "when a sign-flip test over seeds shows it above 0 for each proxy (p < 0.05 for all), disagrees when it shows "
        "it below 0 for one of them (p < 0.05 after multiplication by their number); undecided otherwise",
        all_hold(tests) if tests else None,
    )


def _stable(stability: Sequence[float | None]) -> Verdict:
    by_pair = known(stability)
    return Verdict(
        "Not in the paper: the order of examples by privacy loss is stable across training seeds.",
        f"Spearman between two runs {shown(*stability)}",
        f"stable means a rank correlation above {_STABLE:g}, stated beforehand; agrees when a sign-flip test over "
        "pairs of runs, each run in one pair, shows it above (p < 0.05), disagrees when it shows it below (p < 0.05); "
        "undecided otherwise",
        None if by_pair is None else threshold_test(by_pair, _STABLE, "Spearman correlation of two runs"),
    )


def _named(correlations: Rows) -> dict[str, list[list[float]]]:
    return {
        _label(name): [[value for value in targets[target] if value is not None] for target in _TARGETS]
        for name, targets in correlations.items()
    }


def _table(correlations: Rows) -> Table:
    rows = tuple(
        (_label(name), *(shown(*targets[target]) for target in _TARGETS))
        for name, targets in correlations.items()
    )
    return Table(("score", *_TARGETS.values()), rows)


def _label(name: str) -> str:
    return _NAMES.get(name, name.replace("_", " "))
