"""An audit: what was measured on a run, against models that were never trained on the forget set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from remanence.audit.context import Context
from remanence.audit.evaluation import Evaluation, evaluate
from remanence.audit.metric import POINTS, Metric
from remanence.audit.registry import METRICS, metrics_named
from remanence.audit.shadow_table import ShadowTable
from remanence.data import Split
from remanence.errors import InputError
from remanence.training import Run
from remanence.types import ForgetSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Verdict = Literal["within", "below", "above", "unknown"]
ALWAYS = ("ua", "ra", "test", "mia", "mia_accuracy", "mia_loss", "mia_entropy", "mia_margin")
ENOUGH_FOR_KLOM = 10
"""With fewer oracles KLOM is computed when asked for, and not by default."""
Progress = Callable[[int, int], None]
"""(models evaluated, models in all) -> None."""


@dataclass(frozen=True)
class Finding:
    """One metric of one run beside the oracles'.

    Args:
        metric: which.
        value: of the run.
        oracle_mean: over the oracles; None where there is nothing to compare with.
        oracle_sd: their sample standard deviation; 0 for a single one.
        tolerance: how far off counts as close.
    """

    metric: Metric
    value: float
    oracle_mean: float | None
    oracle_sd: float | None
    tolerance: float

    @property
    def distance(self) -> float | None:
        """Value minus the oracles' mean."""
        return None if self.oracle_mean is None else self.value - self.oracle_mean

    @property
    def verdict(self) -> Verdict:
        """On both sides: a model that forgets more than retraining would has not forgotten well either."""
        if self.distance is None:
            return "unknown"
        # metrics are shares of a finite set: a difference of exactly five points must not fall to rounding
        if abs(self.distance) <= self.tolerance + 1e-9:
            return "within"
        return "below" if self.distance < 0 else "above"


@dataclass(frozen=True)
class Audit:
    """All findings on one run.

    Args:
        run: whose.
        forget_set: what it was to forget.
        oracles: how many it was compared with.
        findings: one a metric.
        noise: where the run was poisoned, the noise's variance on the scale that the network sees and on
            standardized inputs.
    """

    run: Run
    forget_set: ForgetSet
    oracles: int
    findings: tuple[Finding, ...]
    noise: tuple[float, float] | None = None

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw how far each metric is from the oracles, in tolerances; on new axes by default."""
        from remanence.display.axes import draw_distances, on_axes

        distances = self._distances()
        if not distances:
            raise InputError(
                "An audit without oracles has nothing to compare with; give `audit_runs` oracles."
            )
        return on_axes(lambda axes: draw_distances(axes, list(distances), list(distances.values())), ax)

    def _repr_html_(self) -> str:
        from remanence.display.cards import audit_card

        rows = [
            (each.metric.name, each.value, each.oracle_mean, each.oracle_sd, each.distance, each.verdict)
            for each in self.findings
        ]
        forgotten = f"{self.forget_set.name} ({len(self.forget_set.ids)} examples)"
        return audit_card(str(self.run.folder.path), forgotten, self.oracles, rows, self._distances())

    def _distances(self) -> dict[str, float]:
        """By metric, from what it is compared with, in tolerances."""
        return {
            each.metric.name: each.distance / each.tolerance
            for each in self.findings
            if each.distance is not None and each.tolerance > 0
        }


def audit_runs(
    runs: Sequence[Run],
    forget_set: ForgetSet,
    oracles: Sequence[Run] = (),
    *,
    metrics: Sequence[str] = (),
    tolerance: float | None = None,
    shadows: ShadowTable | None = None,
    progress: Progress = lambda done, total: None,
) -> list[Audit]:
    """Measure runs against oracles, all on the same data.

    Args:
        runs: what is audited. Runs that differ in nothing but their seeds count as one ensemble for KLOM.
        forget_set: what they were to forget.
        oracles: runs that were never trained on any of it; others are refused.
        metrics: which; by default all that can be computed with what is at hand.
        tolerance: how far off counts as close, for shares; each metric's own by default.
        shadows: for U-LiRA.
        progress: told how far it is.
    """
    if not runs:
        raise InputError("Expected at least one run in `runs`; got none.")
    if tolerance is not None and not tolerance > 0:
        raise InputError(f"`tolerance` must be above 0; got {tolerance}.")
    check_oracles(oracles, forget_set)
    share_data([*runs, *oracles])
    chosen = {id(run): _metrics(run, forget_set, oracles, shadows, metrics) for run in runs}
    total = len(runs) + len(oracles) * len({_view(run, forget_set) for run in runs})
    done = 0

    def evaluated(run: Run, split: Split, context: Context) -> Evaluation:
        nonlocal done
        found = evaluate(run.model(), split, context)
        done += 1
        progress(done, total)
        return found

    judged: dict[Any, list[Evaluation]] = {}
    seen: list[Evaluation] = []
    for run in runs:
        split, view = run.split(forget_set), _view(run, forget_set)
        context = Context(poison=run.poison, clean=run.clean[0], shadows=shadows)
        if view not in judged:
            judged[view] = [evaluated(oracle, split, context) for oracle in oracles]
        seen.append(evaluated(run, split, replace(context, oracles=tuple(judged[view]))))
    audits = []
    for run, evaluation in zip(runs, seen, strict=True):
        alike = tuple(
            other
            for each, other in zip(runs, seen, strict=True)
            if kin(each) == kin(run) and _view(each, forget_set) == _view(run, forget_set)
        )
        together = replace(evaluation, context=replace(evaluation.context, ensemble=alike))
        findings = tuple(
            _finding(metric, together, judged[_view(run, forget_set)], tolerance)
            for metric in chosen[id(run)]
        )
        audits.append(Audit(run, forget_set, len(oracles), findings, _noise(run)))
    return audits


def check_oracles(oracles: Sequence[Run], forget_set: ForgetSet) -> None:
    """Refuse an oracle that was trained on the forget set, whatever was unlearned since."""
    for oracle in oracles:
        trained = int(oracle.was_trained_on(forget_set.ids).sum())
        if trained:
            raise InputError(
                f"An oracle must never have been trained on the forget set; {oracle.folder.path} was trained on "
                f"{trained} of the {len(forget_set.ids)} examples of {forget_set.name!r}. Train one with "
                "`remanence train --without`."
            )


def share_data(runs: Sequence[Run]) -> None:
    """Load each data set once for all runs on it; runs on different data cannot be compared."""
    first = runs[0]
    for run in runs[1:]:
        if (run.settings.data, run.settings.data_dir) == (first.settings.data, first.settings.data_dir):
            run.take_data_of(first)
        elif run.clean[0].digest() != first.clean[0].digest():
            raise InputError(
                f"Runs must be on the same data to be compared; {first.folder.path} is on {first.settings.data}, "
                f"{run.folder.path} on {run.settings.data}."
            )


def _metrics(
    run: Run,
    forget_set: ForgetSet,
    oracles: Sequence[Run],
    shadows: ShadowTable | None,
    asked: Sequence[str],
) -> list[Metric]:
    poisoned = run.poison is not None and bool(np.isin(forget_set.ids, run.poison.ids).any())
    held = {"poison": poisoned, "oracles": bool(oracles), "shadows": shadows is not None}
    if not asked:
        extra = [name for name, metric in METRICS.items() if metric.needs and held[metric.needs]]
        skipped = () if len(oracles) >= ENOUGH_FOR_KLOM else ("klom",)
        return metrics_named([*ALWAYS, *(name for name in extra if name not in skipped)])
    found = metrics_named(asked)
    for metric in found:
        if metric.needs == "poison" and not poisoned:
            why = "was not" if run.poison is None else "was poisoned with other examples"
            raise InputError(
                f"`{metric.name}` needs a run whose forget set was poisoned (`remanence train --poison SET`); "
                f"{run.folder.path} {why}."
            )
        if metric.needs and not held[metric.needs]:
            option = {"oracles": "--oracles", "shadows": "--shadows or --budget"}[metric.needs]
            raise InputError(f"`{metric.name}` needs {metric.needs}; give {option}.")
    return found


def _finding(
    metric: Metric, evaluation: Evaluation, oracles: Sequence[Evaluation], tolerance: float | None
) -> Finding:
    values = [] if metric.better == "lower" else _of_oracles(metric, oracles)
    mean = float(np.mean(values)) if values else metric.reference
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    close = metric.scale(evaluation) if callable(metric.scale) else metric.scale
    if tolerance is not None and metric.scale == POINTS:
        close = tolerance
    return Finding(metric, metric(evaluation), mean, None if mean is None else spread, close)


def _of_oracles(metric: Metric, oracles: Sequence[Evaluation]) -> list[float]:
    """The metric of each oracle, judged by the others where it needs oracles; one alone has nobody to be judged by."""
    values = []
    for place, oracle in enumerate(oracles):
        others = tuple(each for i, each in enumerate(oracles) if i != place)
        if metric.needs != "oracles" or others:
            values.append(metric(replace(oracle, context=replace(oracle.context, oracles=others))))
    return values


def _view(run: Run, forget_set: ForgetSet) -> Any:
    """What decides the split a run is judged on."""
    elsewhere = tuple(np.setdiff1d(run.removed, forget_set.ids).tolist())
    poison = run.poison
    return elsewhere, None if poison is None else poison.noise.numpy().tobytes()


def kin(run: Run) -> str:
    """The same for runs that were trained and unlearned alike but for their seeds."""
    made = {key: run.unlearning.get(key) for key in ("method", "options", "recipe", "steps", "forgotten")}
    trained = replace(run.settings, seed=0, record=0, placement="even", sigma=1.0, checkpoint_every=0)
    return repr((replace(trained, keep_checkpoints=False), made))


def _noise(run: Run) -> tuple[float, float] | None:
    if run.poison is None:
        return None
    pixels = float(run.clean[0].inputs.double().var(correction=0))
    return run.poison.variance, run.poison.variance / pixels if pixels else float("inf")
