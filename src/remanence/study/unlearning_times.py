"""Times to unlearn from a study's artifacts, and the verdict on a claim that they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from remanence.audit.gus import QUANTILE_99
from remanence.experiments import Duration, half_gap_time, read_curve, settled_time, time_to_unlearn
from remanence.storage import Folder
from remanence.study.correlations import spearman
from remanence.study.graph import ForgetChoice, Graph
from remanence.study.paired_times import Gap, gap, shown, spread
from remanence.study.results import FigureSettings, Parts, Role, Verdict, Wanted
from remanence.study.significance import paired_test

RULE = (
    "of all pairs of forget sets, the share in which the harder one takes longer minus the share in which it "
    "takes less (Kendall's tau), for every seed; agrees when a sign-flip test over seeds shows it above 0 (p < "
    "0.05), disagrees when the test shows it below 0 (p < 0.05); undecided otherwise. Equal times and pairs "
    "whose order is not known count as 0; which of two times is longer is known only if the shorter one was reached"
)


@dataclass(frozen=True)
class Beside:
    """What is reported beside the time that decides.

    Args:
        settled: the time from which the metric stays within the tolerance until the end.
        half_gap: the time to close half of the run's own gap.
        start: the metric before unlearning.
        oracle: its mean over the oracles.
        lowest_retain: the lowest retain accuracy on the way.
        last_retain: retain accuracy at the end.
        learning_rate: the learning rate of unlearning.
    """

    settled: Duration
    half_gap: Duration
    start: float
    oracle: float
    lowest_retain: float
    last_retain: float
    learning_rate: float

    def row(self) -> dict[str, Any]:
        """As columns of a tidy row."""
        return {
            "settled_epochs": self.settled.value,
            "settled": self.settled.reached,
            "half_gap_epochs": self.half_gap.value,
            "half_gap_reached": self.half_gap.reached,
            "start": self.start,
            "oracle": self.oracle,
            "lowest_retain": self.lowest_retain,
            "last_retain": self.last_retain,
            "learning_rate": self.learning_rate,
        }


@dataclass(frozen=True)
class Timed:
    """One unlearning run, timed by one metric.

    Args:
        role: which run.
        metric: the metric.
        loss: mean privacy loss of the forget set.
        duration: its time to unlearn, in epochs.
        limit: length of the run.
        beside: what is reported beside the time.
        resolution: the shortest time between two evaluations.
    """

    role: Role
    metric: str
    loss: float
    duration: Duration
    limit: float
    beside: Beside | None = None
    resolution: float = 0.0

    def row(self) -> dict[str, Any]:
        """As a tidy row."""
        kept = {key: self.role[key] for key in ("noise", "size", "method", "set", "score", "seed")}
        decides = {
            "metric": self.metric,
            "mean_privacy_loss": self.loss,
            "epochs": self.duration.value,
            "reached": self.duration.reached,
            "limit": self.limit,
        }
        return kept | decides | ({} if self.beside is None else self.beside.row())


def wanted_times(graph: Graph, choices: Sequence[ForgetChoice], method: str, noise: float = 0.0) -> Wanted:
    """Every stage that is needed to time a method on these forget sets."""
    study = graph.study
    wanted: Wanted = []
    for choice in choices:
        facts = {"set": choice.way, "size": choice.size, "score": choice.score}
        facts |= {"noise": noise, "method": method}
        for seed in sorted({graph.scored_by(seed) for seed in study.seed_numbers}):
            chosen = facts | {"scored_by": seed}
            wanted.append(({"role": "forget", **chosen}, graph.forget(choice, seed)))
            for index in range(study.audit.oracles):
                role = {"role": "oracle", **chosen, "index": index}
                wanted.append((role, graph.measured_oracle(choice, index, seed)))
        for seed in study.seed_numbers:
            role = {"role": "unlearned", **facts, "scored_by": graph.scored_by(seed), "seed": seed}
            wanted.append((role, graph.unlearned(choice, seed, method)))
            if "gus" in study.audit.metrics:
                sets = tuple(choices) if study.audit.poison_together else (choice,)
                run = graph.unlearned(choice, seed, method, poisoned=sets)
                wanted.append((role | {"role": "poisoned"}, run))
    return wanted


def timed(parts: Parts, metrics: Sequence[str], settings: FigureSettings) -> Iterator[Timed]:
    """The time of every unlearning run by every metric, against the mean of its oracles.

    By `gus` the runs from poisoned models are timed against 0, the mean of a model without the noise, within the
    range that such a model has in 99 of 100 cases.
    """
    for metric in metrics:
        for role, folder in parts.all("poisoned" if metric == "gus" else "unlearned"):
            same = {key: role[key] for key in ("set", "size", "score", "noise", "method", "scored_by")}
            loss = parts.one("forget", **same).document("forget_set")["mean_privacy_loss"]
            if metric == "gus":
                goal, near = 0.0, QUANTILE_99 / folder.document("unlearning")["poisoned"] ** 0.5
            else:
                oracles = [oracle for _, oracle in parts.all("oracle", **same)]
                goal = float(np.mean([read_curve(oracle, metric)[1][-1] for oracle in oracles]))
                near = settings.tolerance
            epochs = epochs_of(folder, metric)
            values = read_curve(folder, metric)[1]
            duration = _duration(folder, epochs, values, goal, near, settings.stay)
            beside = _beside(folder, epochs, values, goal, near)
            resolution = float(np.min(np.diff(epochs))) if len(epochs) > 1 else 0.0
            yield Timed(role, metric, loss, duration, epochs[-1], beside, resolution)


def epochs_of(folder: Folder, metric: str) -> list[float]:
    """When a metric was measured, in epochs of unlearning."""
    per_epoch = folder.document("unlearning")["steps_per_epoch"]
    return [step / per_epoch for step in read_curve(folder, metric)[0]]


def _duration(
    folder: Folder, epochs: list[float], values: list[float], goal: float, near: float, stay: int
) -> Duration:
    if folder.document("unlearning")["diverged"] is not None or len(values) < stay:
        return Duration(epochs[-1], reached=False)
    return time_to_unlearn(epochs, values, goal, tolerance=near, stay=stay)


def _beside(folder: Folder, epochs: list[float], values: list[float], goal: float, near: float) -> Beside:
    retain = read_curve(folder, "ra")[1]
    return Beside(
        settled=settled_time(epochs, values, goal, tolerance=near),
        half_gap=half_gap_time(epochs, values, goal),
        start=values[0],
        oracle=goal,
        lowest_retain=min(retain),
        last_retain=retain[-1],
        learning_rate=folder.document("unlearning")["learning_rate"],
    )


def by_set(runs: Iterable[Timed]) -> list[tuple[float, list[Timed]]]:
    """The runs of each forget set with its mean privacy loss over seeds, the easiest first."""
    sets: dict[tuple[str, int, str], list[Timed]] = {}
    for run in runs:
        sets.setdefault((run.role["set"], run.role["size"], run.role["score"]), []).append(run)
    with_loss = [(float(np.mean([run.loss for run in group])), group) for group in sets.values()]
    return sorted(with_loss, key=lambda pair: pair[0])


def rising(runs: Sequence[Timed], claim: str) -> Verdict:
    """Whether times grow with the mean privacy loss of the forget set, seed by seed."""
    by_seed = ordered_by_loss(runs)
    known = [value for seed in by_seed if (value := rank_agreement(seed)) is not None]
    gaps = [value for value in hardest_minus_easiest(runs) if value is not None]
    censored = sum(not run.duration.reached for run in runs)
    saw = (
        f"hardest minus easiest {shown(gaps)} epochs (known for {len(gaps)} of {len(by_seed)} seeds), Spearman "
        f"{spread(known) if known else 'undefined'}; {censored} of {len(runs)} runs did not reach the target"
    )
    scores = [trend(seed) for seed in by_seed]
    test = paired_test(scores, "Kendall's tau of time and privacy loss", limits=(-1.0, 1.0))
    return Verdict(claim, saw, RULE, test)


def trend(runs: Sequence[Timed]) -> float:
    """Kendall's tau of time and privacy loss over the forget sets of one seed; pairs of unknown order count as 0."""
    pairs = [(easy, hard) for easy, hard in combinations(runs, 2) if easy.loss < hard.loss]
    gaps = [gap(hard.duration, easy.duration) for easy, hard in pairs]
    signs = [float(np.sign(difference.value)) for difference in gaps if difference is not None]
    return sum(signs) / len(pairs) if pairs else 0.0


def ordered_by_loss(runs: Iterable[Timed]) -> list[list[Timed]]:
    """The runs of each seed, the easiest forget set first."""
    by_seed: dict[int, list[Timed]] = {}
    for run in sorted(runs, key=lambda run: run.loss):
        by_seed.setdefault(run.role["seed"], []).append(run)
    return list(by_seed.values())


def hardest_minus_easiest(runs: Iterable[Timed]) -> list[Gap | None]:
    """How much longer the hardest set took than the easiest, with each seed; None where that is not known."""
    return [gap(seed[-1].duration, seed[0].duration) for seed in ordered_by_loss(runs)]


def rank_agreement(runs: Sequence[Timed]) -> float | None:
    """Spearman correlation of time and privacy loss over forget sets, with censored times.

    A run that did not reach the target counts as the longest if it was observed longer than any other took. A run that
    diverged early is not known to be long or short; None when half of them did, or when all times are equal.
    """
    longest = max((run.duration.value for run in runs if run.duration.reached), default=0.0)
    ranked = [run for run in runs if run.duration.reached or run.duration.value > longest]
    if 2 * len(ranked) <= len(runs):
        return None
    return spearman([run.loss for run in ranked], [_rank_value(run) for run in ranked])


def _rank_value(run: Timed) -> float:
    """All runs that did not reach the target count as equally long."""
    return run.duration.value if run.duration.reached else float("inf")
