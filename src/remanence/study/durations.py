"""Times to unlearn out of a study's artifacts, and what they say about a claim that they grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from remanence.audit.gus import BEYOND
from remanence.storage import Folder
from remanence.study.graph import Choice, Graph
from remanence.study.results import Agreement, Parts, Role, Verdict, Wanted
from remanence.study.stages_of_unlearning import values
from remanence.trials import Duration, time_to_unlearn

RULE = (
    "agrees when the hardest set takes longer than the easiest with every seed and the rank correlation of time and "
    "loss, averaged over seeds, is at least 0.5; disagrees when the hardest takes no longer on average or the "
    "correlation is not positive; undecided otherwise, and where all times are equal"
)


@dataclass(frozen=True)
class Timed:
    """One unlearning run, timed by one metric."""

    role: Role
    metric: str
    loss: float
    duration: Duration
    limit: float

    def row(self) -> dict[str, Any]:
        """As a tidy row."""
        kept = {key: self.role[key] for key in ("noise", "size", "method", "set", "score", "seed")}
        return kept | {
            "metric": self.metric,
            "mean_privacy_loss": self.loss,
            "epochs": self.duration.value,
            "reached": self.duration.reached,
            "limit": self.limit,
        }


def wanted_times(graph: Graph, choices: Sequence[Choice], method: str, noise: float = 0.0) -> Wanted:
    """Every stage that timing a method on these forget sets takes."""
    study = graph.study
    wanted: Wanted = []
    for choice in choices:
        facts = {"set": choice.way, "size": choice.size, "score": choice.score, "noise": noise}
        wanted.append(({"role": "forget", **facts}, graph.forget(choice)))
        for replicate in range(study.audit.oracles):
            role = {"role": "oracle", **facts, "replicate": replicate}
            wanted.append((role, graph.measured_oracle(choice, replicate)))
        for seed in range(study.seeds):
            role = {"role": "unlearned", **facts, "method": method, "seed": seed}
            wanted.append((role, graph.unlearned(choice, seed, method)))
            if "gus" in study.audit.metrics:
                sets = tuple(choices) if study.audit.poison_together else (choice,)
                run = graph.unlearned(choice, seed, method, poisoned=sets)
                wanted.append((role | {"role": "poisoned"}, run))
    return wanted


def timed(parts: Parts, metrics: Sequence[str], audit: Mapping[str, Any]) -> Iterator[Timed]:
    """How long every unlearning run took by every metric, against the mean of its oracles.

    By `gus` the runs from poisoned models are timed: against 0, which is what a model without the noise has on
    average, give or take what it has in 99 of 100 cases.
    """
    for metric in metrics:
        for role, folder in parts.all("poisoned" if metric == "gus" else "unlearned"):
            same = {key: role[key] for key in ("set", "size", "score", "noise")}
            loss = parts.one("forget", **same).document("forget_set")["mean_privacy_loss"]
            if metric == "gus":
                goal, near = 0.0, BEYOND / folder.document("unlearning")["poisoned"] ** 0.5
            else:
                oracles = [each for _, each in parts.all("oracle", **same)]
                goal, near = (
                    float(np.mean([values(each, metric)[-1] for each in oracles])),
                    audit["tolerance"],
                )
            epochs = epochs_of(folder, metric)
            found = _duration(folder, epochs, values(folder, metric), goal, near, audit["stay"])
            yield Timed(role, metric, loss, found, epochs[-1])


def epochs_of(folder: Folder, metric: str) -> list[float]:
    """When a metric was measured, in epochs of unlearning."""
    per_epoch = folder.document("unlearning")["steps_per_epoch"]
    return [row["step"] / per_epoch for row in folder.rows("measurements") if row["metric"] == metric]


def _duration(
    folder: Folder, epochs: list[float], found: list[float], goal: float, near: float, stay: int
) -> Duration:
    if folder.document("unlearning")["diverged"] is not None or len(found) < stay:
        return Duration(epochs[-1], reached=False)
    return time_to_unlearn(epochs, found, goal, tolerance=near, stay=stay)


def rising(runs: Sequence[Timed], claim: str) -> Verdict:
    """Whether times grow with the mean privacy loss of the forget set, seed by seed."""
    by_seed: dict[int, list[Timed]] = {}
    for run in runs:
        by_seed.setdefault(run.role["seed"], []).append(run)
    correlations, gaps = [], []
    for each in by_seed.values():
        ordered = sorted(each, key=lambda run: run.loss)
        correlations.append(spearman([run.loss for run in ordered], [run.duration.value for run in ordered]))
        gaps.append(ordered[-1].duration.value - ordered[0].duration.value)
    known = [each for each in correlations if each is not None]
    censored = sum(not run.duration.reached for run in runs)
    saw = (
        f"hardest minus easiest {spread(gaps)} epochs, Spearman {spread(known) if known else 'undefined'} over "
        f"{len(by_seed)} seeds; {censored} of {len(runs)} runs had not got there by the end"
    )
    return Verdict(claim, saw, _rises(known, gaps), RULE)


def _rises(correlations: Sequence[float], gaps: Sequence[float]) -> Agreement:
    if not correlations:
        return "undecided"
    if np.mean(gaps) <= 0 or np.mean(correlations) <= 0:
        return "disagrees"
    return "agrees" if min(gaps) > 0 and np.mean(correlations) >= 0.5 else "undecided"


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation; none where one side is constant."""
    if len(set(a)) < 2 or len(set(b)) < 2:
        return None
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def spread(values_: Sequence[float]) -> str:
    """Mean ± sample standard deviation."""
    sd = float(np.std(values_, ddof=1)) if len(values_) > 1 else 0.0
    return f"{np.mean(values_):.2f} ± {sd:.2f}"
