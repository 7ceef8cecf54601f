"""Times to unlearn out of a study's artifacts, and what they say about a claim that they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remanence.audit.gus import QUANTILE_99
from remanence.storage import Folder
from remanence.study.correlations import spearman
from remanence.study.gaps import Gap, gap, longer_on_average, shown, spread
from remanence.study.graph import Choice, Graph
from remanence.study.results import Agreement, Parts, Role, Verdict, Wanted
from remanence.study.stages_of_unlearning import values
from remanence.trials import Duration, time_to_unlearn

RULE = (
    "agrees when the hardest set takes longer than the easiest with every seed that tells and the rank correlation of "
    "time and loss, averaged over seeds, is at least 0.5; disagrees when the hardest takes no longer on average or the "
    "correlation is not positive; undecided otherwise, where all times are equal, and where not more than half of the "
    "seeds tell. Which of two times is longer is known only if the shorter one was reached"
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
        facts = {"set": choice.way, "size": choice.size, "score": choice.score}
        facts |= {"noise": noise, "method": method}
        wanted.append(({"role": "forget", **facts}, graph.forget(choice)))
        for replicate in range(study.audit.oracles):
            role = {"role": "oracle", **facts, "replicate": replicate}
            wanted.append((role, graph.measured_oracle(choice, replicate)))
        for seed in range(study.seeds):
            role = {"role": "unlearned", **facts, "seed": seed}
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
            same = {key: role[key] for key in ("set", "size", "score", "noise", "method")}
            loss = parts.one("forget", **same).document("forget_set")["mean_privacy_loss"]
            if metric == "gus":
                goal, near = 0.0, QUANTILE_99 / folder.document("unlearning")["poisoned"] ** 0.5
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
    by_seed = ordered_by_loss(runs)
    correlations = [_correlation(each) for each in by_seed]
    known = [each for each in correlations if each is not None]
    gaps = [each for each in hardest_minus_easiest(runs) if each is not None]
    censored = sum(not run.duration.reached for run in runs)
    saw = (
        f"hardest minus easiest {shown(gaps)} epochs (told by {len(gaps)} of {len(by_seed)} seeds), Spearman "
        f"{spread(known) if known else 'undefined'}; {censored} of {len(runs)} runs had not got there by the end"
    )
    tells = 2 * len(gaps) > len(by_seed)
    return Verdict(claim, saw, _rises(known, gaps) if tells else "undecided", RULE)


def ordered_by_loss(runs: Iterable[Timed]) -> list[list[Timed]]:
    """The runs of each seed, those of the easiest forget set first."""
    by_seed: dict[int, list[Timed]] = {}
    for run in sorted(runs, key=lambda run: run.loss):
        by_seed.setdefault(run.role["seed"], []).append(run)
    return list(by_seed.values())


def hardest_minus_easiest(runs: Iterable[Timed]) -> list[Gap | None]:
    """How much longer the hardest set took than the easiest, with each seed; none where that is not known."""
    return [gap(each[-1].duration, each[0].duration) for each in ordered_by_loss(runs)]


def _correlation(runs: Sequence[Timed]) -> float | None:
    """Of time and loss. A run that had not got there counts if it was watched longer than any other took.

    A run that diverged early is not known to be long or short; where half of them did, nothing is said.
    """
    longest = max((run.duration.value for run in runs if run.duration.reached), default=0.0)
    ranked = [run for run in runs if run.duration.reached or run.duration.value > longest]
    if 2 * len(ranked) <= len(runs):
        return None
    return spearman([run.loss for run in ranked], [_rank_value(run) for run in ranked])


def _rank_value(run: Timed) -> float:
    """All that had not got there are equally long, for all that is known."""
    return run.duration.value if run.duration.reached else float("inf")


def _rises(correlations: Sequence[float], gaps: Sequence[Gap]) -> Agreement:
    if not correlations:
        return "undecided"
    if longer_on_average(gaps) is False or np.mean(correlations) <= 0:
        return "disagrees"
    longer = all(each.value > 0 for each in gaps)
    return "agrees" if longer and np.mean(correlations) >= 0.5 else "undecided"
