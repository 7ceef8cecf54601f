"""The audit of a request: every metric before and after, beside models that were never trained on the examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from remanence.audit import METRICS, Context, Evaluation, evaluate
from remanence.audit.auditing import Finding
from remanence.audit.metric import Metric
from remanence.audit.relearning import Relearn
from remanence.data import Split
from remanence.errors import InputError
from remanence.requests.plan import Plan
from remanence.requests.request import Request
from remanence.tasks.canaries import Canaries
from remanence.training import Run

_ALWAYS = ("mia_confidence", "log_odds", "ua", "ra", "test", "mia", "mia_accuracy", "mia_loss", "mia_entropy")
_SPREADS = 2.0
"""Standard deviations between models never trained on the examples that count as close."""
_IF_POISONED = ("gus", "gus_z")
_BEFORE = "before"
"""The model before unlearning. Its copies are not fine-tuned: it was trained on the examples, so nothing can come back.
"""
_HARM = ("harm", "harm_worst_class")
_RELEARNING = ("relearn_retain", "relearn_retain_log_odds", "relearn_speed", "relearn_speed_log_odds")


def audit_request(
    run: Run, plan: Plan, unlearned: nn.Module, oracle: Run | None, relearning: Relearn | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Every metric that can be computed, before and after unlearning, and for the oracle if there is one.

    Args:
        run: the run before unlearning.
        plan: the plan of the request.
        unlearned: the model after unlearning.
        oracle: a run that was retrained without the examples.
        relearning: fine-tunes copies of the models, but for the one before unlearning; None to skip it.

    Returns:
        One row per metric, and what could not be measured, each with the reason.
    """
    models = {_BEFORE: run.model(), "after": unlearned}
    if oracle is not None:
        models["oracle"] = oracle.model()
    evaluations = _evaluations(run, run.split(plan.request.forget_set), models, relearning)
    names = [name for name in _ALWAYS if run.clean[0].has_classes or not METRICS[name].of_classes]
    rows = [_row(name, evaluations, plan) for name in (*names, *poison_metrics(run, plan.request))]
    reasons = []
    for name in _further_metrics(run, oracle, relearning):
        try:
            rows.append(_row(name, evaluations, plan))
        except InputError as reason:
            reasons.append(f"{name}: {reason}")
    return rows, reasons


def _evaluations(
    run: Run, split: Split, models: Mapping[str, nn.Module], relearning: Relearn | None
) -> dict[str, Evaluation]:
    shared = Context(poison=run.poison, clean=run.clean[0], canaries=_canaries_that_stay(run, split))
    evaluations = {}
    for name, model in models.items():
        relearned = None
        if relearning is not None and name != _BEFORE:
            relearned = relearning(model, split, run.settings.recipe)
        evaluations[name] = evaluate(model, split, replace(shared, relearned=relearned))
    oracles = tuple(evaluations[name] for name in ("oracle",) if name in evaluations)
    before = evaluations[_BEFORE]
    return {
        name: replace(
            evaluation,
            context=replace(evaluation.context, before=before, oracles=() if name == "oracle" else oracles),
        )
        for name, evaluation in evaluations.items()
    }


def _canaries_that_stay(run: Run, split: Split) -> Canaries | None:
    """Whether a canary can be requested depends on its coin, so the bound is about the others."""
    canaries = run.canaries
    if canaries is None:
        return None
    stays = ~np.isin(canaries.examples.ids, split.forget.ids)
    return Canaries(canaries.examples.take(canaries.examples.ids[stays]), canaries.included[stays])


def _further_metrics(run: Run, oracle: Run | None, relearning: Relearn | None) -> Sequence[str]:
    return (
        *(() if relearning is None else _RELEARNING),
        *_HARM,
        *(() if oracle is None else ("rmia",)),
        *(() if run.canaries is None else ("one_run_epsilon",)),
    )


def poison_metrics(run: Run, request: Request) -> tuple[str, ...]:
    """The metrics that look for planted noise, if some of the examples were trained with it."""
    poisoned = run.poison is not None and bool(np.isin(request.ids, run.poison.ids).any())
    return _IF_POISONED if poisoned else ()


def not_measured(
    run: Run, request: Request, oracle: Run | None, relearning: bool, has_pool: bool
) -> list[str]:
    """What was not measured, with the reasons."""
    sentences = []
    if not relearning:
        sentences.append("Relearning: it was skipped (`remanence forget --no-relearning`).")
    if not poison_metrics(run, request):
        sentences.append(
            "GUS: none of these examples was trained with planted noise (`remanence train --poison`)."
        )
    if run.settings.table is not None:
        sentences.append(
            "What the medians, means, deviations and categories of the table's features reveal: they were computed "
            "from all training rows, these included, and stay as they are."
        )
    if not run.clean[0].has_classes:
        sentences.append(
            "Metrics of class probabilities (mia_entropy): the model does not answer with classes."
        )
    if oracle is None:
        estimated = (
            "the values of a retrained model are estimated from the reference models of the calibration"
        )
        missing = "there are no reference models (`remanence calibrate`) to estimate its values from"
        sentences.append(
            "No model was retrained for comparison (`remanence forget --oracle`); "
            f"{estimated if has_pool else missing}."
        )
    return sentences


def _has_needed(metric: Metric, evaluation: Evaluation) -> bool:
    """Whether a model has what a metric needs. Only those that should have forgotten are fine-tuned for relearning."""
    needed = {"oracles": evaluation.context.oracles, "relearning": evaluation.context.relearned}
    return bool(needed.get(metric.needs or "", True))


def _row(name: str, evaluations: Mapping[str, Evaluation], plan: Plan) -> dict[str, Any]:
    metric, expected = METRICS[name], plan.expected
    values = {
        model: metric(evaluation)
        for model, evaluation in evaluations.items()
        if _has_needed(metric, evaluation)
    }
    known = {} if expected is None else expected.by_metric
    pool, spread = known.get(name, (None, None))
    tolerance = metric.tolerance_for(evaluations["after"])
    if spread is not None:
        tolerance = max(tolerance, _SPREADS * spread)
    after, oracle = values["after"], values.get("oracle")
    target = pool if pool is not None else values.get("oracle", metric.reference)
    by_oracle = None if oracle is None else Finding(metric, after, oracle, None, tolerance).verdict
    return {
        "metric": name,
        "meaning": metric.meaning,
        "if_never_trained_on": metric.at_oracle,
        "before": values.get(_BEFORE),
        "after": after,
        "expected": pool if pool is not None else metric.reference,
        "expected_spread": spread,
        "oracle": oracle,
        "tolerance": tolerance,
        "verdict": Finding(metric, after, target, spread, tolerance).verdict,
        "verdict_by_oracle": by_oracle,
    }
