"""Audits: the metrics of runs, compared with models that were never trained on the forget set (oracles)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from remanence.audit.canary_bound import bound_of
from remanence.audit.context import Context, ShadowTable
from remanence.audit.evaluation import Evaluation, evaluate
from remanence.audit.metric import POINTS, Metric
from remanence.audit.metric_choice import available, choose_metrics, parent_of
from remanence.audit.one_run import OneRunBound
from remanence.audit.relearning import Relearn
from remanence.data import Split
from remanence.errors import InputError
from remanence.training import Run
from remanence.types import ForgetSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Verdict = Literal["within", "below", "above", "unknown"]
Progress = Callable[[int, int], None]
"""(models evaluated, total number of models) -> None."""


@dataclass(frozen=True)
class Finding:
    """One metric of one run, compared with the oracles.

    Args:
        metric: the metric.
        value: the run's value.
        oracle_mean: mean of the oracles; None if there is nothing to compare with.
        oracle_sd: sample standard deviation of the oracles; 0 for a single one.
        tolerance: how far from the oracles counts as close.
        value_sd: standard deviation of the value, where it can be estimated.
        conclusive: whether a value within the tolerance shows anything; otherwise there were too few models.
    """

    metric: Metric
    value: float
    oracle_mean: float | None
    oracle_sd: float | None
    tolerance: float
    value_sd: float | None = None
    conclusive: bool = True

    @property
    def distance(self) -> float | None:
        return None if self.oracle_mean is None else self.value - self.oracle_mean

    @property
    def verdict(self) -> Verdict:
        """Two-sided, unless lower is better: forgetting more than retraining does is not good unlearning either."""
        if self.distance is None:
            return "unknown"
        beyond = self.distance if self.metric.better == "lower" else abs(self.distance)
        # metrics are shares of a finite set: a difference of exactly five points must not depend on rounding
        if beyond <= self.tolerance + 1e-9:
            return "within" if self.conclusive else "unknown"
        return "below" if self.distance < 0 else "above"


@dataclass(frozen=True)
class Audit:
    """All findings on one run.

    Args:
        run: the audited run.
        forget_set: the examples that it should have forgotten.
        oracles: number of oracles that it was compared with.
        findings: one per metric.
        noise: if the run was poisoned, the variance of the noise on the network's inputs and on standardized inputs.
        not_measured: what could not be measured, each with the reason.
        one_run: if the run has canaries, the numbers behind `one_run_epsilon`.
    """

    run: Run
    forget_set: ForgetSet
    oracles: int
    findings: tuple[Finding, ...]
    noise: tuple[float, float] | None = None
    not_measured: tuple[str, ...] = ()
    one_run: OneRunBound | None = None

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot the distance of each metric from the oracles, in tolerances; on new axes by default."""
        from remanence.display.plots import draw_distances, on_axes

        distances = self._distances()
        if not distances:
            raise InputError(
                "An audit without oracles has nothing to compare with; pass `oracles` to `audit_runs`."
            )
        return on_axes(lambda axes: draw_distances(axes, list(distances), list(distances.values())), ax)

    def _repr_html_(self) -> str:
        from remanence.display.notebook_cards import audit_card

        rows = [
            (row.metric.name, row.value, row.oracle_mean, row.oracle_sd, row.distance, row.verdict)
            for row in self.findings
        ]
        forgotten = f"{self.forget_set.name} ({len(self.forget_set.ids)} examples)"
        return audit_card(
            str(self.run.folder.path), forgotten, self.oracles, rows, self._distances(), self.not_measured
        )

    def _distances(self) -> dict[str, float]:
        """Distance from the oracles by metric, in tolerances."""
        return {
            finding.metric.name: finding.distance / finding.tolerance
            for finding in self.findings
            if finding.distance is not None and finding.tolerance > 0
        }


def audit_runs(
    runs: Sequence[Run],
    forget_set: ForgetSet,
    oracles: Sequence[Run] = (),
    *,
    metrics: Sequence[str] = (),
    tolerance: float | None = None,
    shadows: ShadowTable | None = None,
    relearning: Relearn | None = None,
    people: Mapping[int | str, str] | None = None,
    progress: Progress = lambda done, total: None,
) -> list[Audit]:
    """Measure runs against oracles, all on the same data.

    Args:
        runs: the runs to audit. Runs that differ only in their seeds form one ensemble for KLOM.
        forget_set: the examples that they should have forgotten.
        oracles: runs that were never trained on any of them; others raise an error.
        metrics: names of metrics; by default all that can be computed.
        tolerance: how far from the oracles counts as close, for metrics that are shares; each metric's own by default.
        shadows: outputs of shadow models, for U-LiRA, BaVarIA and the SWAP test.
        relearning: fine-tunes copies of every model, for the relearning metrics; `remanence.experiments.Relearning`.
        people: whose the examples are, by id, for the harm to the worst person.
        progress: called after every evaluated model.
    """
    if not runs:
        raise InputError("Expected at least one run in `runs`; got none.")
    if tolerance is not None and not tolerance > 0:
        raise InputError(f"`tolerance` must be above 0; got {tolerance}.")
    check_oracles(oracles, forget_set)
    share_data([*runs, *oracles])
    shared = Context(shadows=shadows, people=people)
    views = [_view(run, forget_set) for run in runs]
    keys = [(recipe_key(run), view) for run, view in zip(runs, views, strict=True)]
    parents = [parent_of(run, runs, views) for run in runs]
    chosen = [
        choose_metrics(
            run,
            metrics,
            available(run, forget_set, oracles, shared, relearning, parent),
            len(oracles),
            keys.count(key),
        )
        for run, parent, key in zip(runs, parents, keys, strict=True)
    ]
    of_runs, of_oracles = _evaluations(runs, views, forget_set, oracles, shared, relearning, progress)
    ensembles: dict[Any, list[Evaluation]] = {}
    for key, evaluation in zip(keys, of_runs, strict=True):
        ensembles.setdefault(key, []).append(evaluation)
    audits = []
    for i, run in enumerate(runs):
        parent = parents[i]
        before = None if parent is None else of_runs[parent]
        context = replace(of_runs[i].context, ensemble=tuple(ensembles[keys[i]]), before=before)
        complete = replace(of_runs[i], context=context)
        findings, reasons = _findings(
            chosen[i], complete, of_oracles[views[i]], tolerance, complain=bool(metrics)
        )
        with_canaries = any(finding.metric.name == "one_run_epsilon" for finding in findings)
        bound = bound_of(complete) if with_canaries else None
        audits.append(Audit(run, forget_set, len(oracles), findings, _noise(run), reasons, bound))
    return audits


def _findings(
    metrics: Sequence[Metric],
    evaluation: Evaluation,
    oracles: Sequence[Evaluation],
    tolerance: float | None,
    *,
    complain: bool,
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """The findings, and the reasons of metrics that gave none, which are errors if the metrics were asked for."""
    findings, reasons = [], []
    for metric in metrics:
        try:
            findings.append(_finding(metric, evaluation, oracles, tolerance))
        except InputError as reason:
            if complain:
                raise
            reasons.append(f"{metric.name}: {reason}")
    return tuple(findings), tuple(reasons)


def _evaluations(
    runs: Sequence[Run],
    views: Sequence[Any],
    forget_set: ForgetSet,
    oracles: Sequence[Run],
    shared: Context,
    relearning: Relearn | None,
    progress: Progress,
) -> tuple[list[Evaluation], dict[Any, list[Evaluation]]]:
    """Every run evaluated, and for every view the oracles evaluated on the same split."""
    total = len(runs) + len(oracles) * len(set(views))
    done = 0

    def evaluated(run: Run, split: Split, context: Context) -> Evaluation:
        nonlocal done
        model = run.model()
        if relearning is not None:
            context = replace(context, relearned=relearning(model, split, run.settings.recipe))
        evaluation = evaluate(model, split, context)
        done += 1
        progress(done, total)
        return evaluation

    of_oracles: dict[Any, list[Evaluation]] = {}
    of_runs: list[Evaluation] = []
    for run, view in zip(runs, views, strict=True):
        split = run.split(forget_set)
        context = replace(shared, poison=run.poison, clean=run.clean[0], canaries=run.canaries)
        if view not in of_oracles:
            of_oracles[view] = [evaluated(oracle, split, context) for oracle in oracles]
        of_runs.append(evaluated(run, split, replace(context, oracles=tuple(of_oracles[view]))))
    return of_runs, of_oracles


def check_oracles(oracles: Sequence[Run], forget_set: ForgetSet) -> None:
    """Raise for an oracle that was ever trained on the forget set, even if it has unlearned it."""
    for oracle in oracles:
        trained = int(oracle.was_trained_on(forget_set.ids).sum())
        if trained:
            raise InputError(
                f"An oracle must never have been trained on the forget set; {oracle.folder.path} was trained on "
                f"{trained} of the {len(forget_set.ids)} examples of {forget_set.name!r}. Train one without them."
            )


def share_data(runs: Sequence[Run]) -> None:
    """Load each data set once for all runs; raise for runs on different data, which cannot be compared."""
    first = runs[0]
    for run in runs[1:]:
        if run.settings.same_data(first.settings) and run.given_task is first.given_task:
            run.take_data_of(first)
        elif run.clean[0].digest() != first.clean[0].digest():
            raise InputError(
                f"Runs must be on the same data to be compared; {first.folder.path} is on {first.settings.data_name}, "
                f"{run.folder.path} on {run.settings.data_name}."
            )


def _finding(
    metric: Metric, evaluation: Evaluation, oracles: Sequence[Evaluation], tolerance: float | None
) -> Finding:
    value_sd = None if metric.spread is None else metric.spread(evaluation)
    if metric.null is not None:
        null = metric.null(evaluation)
        return Finding(
            metric, metric(evaluation), null.mean, null.sd, null.tolerance, value_sd, null.conclusive
        )
    values = _of_oracles(metric, oracles, evaluation.context) if metric.better == "oracle" else []
    mean = float(np.mean(values)) if values else metric.reference
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    if tolerance is None or metric.tolerance != POINTS:
        tolerance = metric.tolerance_for(evaluation)
    return Finding(metric, metric(evaluation), mean, None if mean is None else spread, tolerance, value_sd)


def _of_oracles(metric: Metric, oracles: Sequence[Evaluation], context: Context) -> list[float]:
    """The metric of each oracle, compared with the others if it needs oracles; none if they are too few for that."""
    values = []
    for i, oracle in enumerate(oracles):
        others = (*oracles[:i], *oracles[i + 1 :])
        own = replace(oracle.context, oracles=others, before=context.before)
        try:
            values.append(metric(replace(oracle, context=own)))
        except InputError:
            if metric.needs != "oracles":
                raise
            return []
    return values


def _view(run: Run, forget_set: ForgetSet) -> Any:
    """Runs with equal values are evaluated on the same split."""
    already_removed = tuple(np.setdiff1d(run.removed, forget_set.ids).tolist())
    poison = run.poison
    return already_removed, None if poison is None else poison.noise.numpy().tobytes()


def recipe_key(run: Run) -> str:
    """Equal for runs that were trained and unlearned in the same way, except for their seeds."""
    unlearned = {
        key: run.unlearning.get(key) for key in ("method", "options", "recipe", "steps", "forgotten")
    }
    trained = replace(run.settings, seed=0, record=0, placement="even", sigma=1.0, checkpoint_every=0)
    return repr((replace(trained, keep_checkpoints=False), unlearned))


def _noise(run: Run) -> tuple[float, float] | None:
    if run.poison is None:
        return None
    pixels = float(run.clean[0].inputs.double().var(correction=0))
    return run.poison.variance, run.poison.variance / pixels if pixels else float("inf")
