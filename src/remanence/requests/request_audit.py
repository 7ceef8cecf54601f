"""The audit of a request: every metric before and after, beside models that were never trained on the examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from remanence.audit import METRICS, Context, Evaluation, evaluate
from remanence.audit.auditing import Finding
from remanence.requests.plan import Plan
from remanence.requests.request import Request
from remanence.training import Run

_ALWAYS = ("mia", "log_odds", "ua", "ra", "test", "mia_accuracy", "mia_loss", "mia_entropy", "mia_margin")
_IF_POISONED = ("gus", "gus_z")


def audit_request(run: Run, plan: Plan, unlearned: nn.Module, oracle: Run | None) -> list[dict[str, Any]]:
    """Every metric that can be computed, before and after unlearning, and for the oracle if there is one."""
    split = run.split(plan.request.forget_set)
    context = Context(poison=run.poison, clean=run.clean[0])
    models = {"before": run.model(), "after": unlearned}
    if oracle is not None:
        models["oracle"] = oracle.model()
    evaluations = {name: evaluate(model, split, context) for name, model in models.items()}
    return [_row(name, evaluations, plan) for name in (*_ALWAYS, *poison_metrics(run, plan.request))]


def poison_metrics(run: Run, request: Request) -> tuple[str, ...]:
    """The metrics that look for planted noise, if some of the examples were trained with it."""
    poisoned = run.poison is not None and bool(np.isin(request.ids, run.poison.ids).any())
    return _IF_POISONED if poisoned else ()


def not_measured(run: Run, request: Request, oracle: Run | None) -> list[str]:
    """What was not measured, with the reasons."""
    sentences = []
    if not poison_metrics(run, request):
        sentences.append(
            "GUS: none of these examples was trained with planted noise (`remanence train --poison`)."
        )
    if oracle is None:
        sentences.append(
            "No model was retrained for comparison (`remanence forget --oracle`); the values of a retrained model are "
            "estimated from the reference models of the calibration."
        )
    return sentences


def _row(name: str, evaluations: Mapping[str, Evaluation], plan: Plan) -> dict[str, Any]:
    metric, expected = METRICS[name], plan.expected
    values = {model: metric(evaluation) for model, evaluation in evaluations.items()}
    pool, spread = {
        "mia": (expected.mia, expected.mia_spread),
        "log_odds": (expected.log_odds, expected.log_odds_spread),
    }.get(name, (None, None))
    tolerance = metric.tolerance_for(evaluations["after"])
    if name == plan.criterion.metric:
        tolerance = plan.criterion.tolerance
    after, oracle = values["after"], values.get("oracle")
    target = pool if pool is not None else values.get("oracle", metric.reference)
    by_oracle = None if oracle is None else Finding(metric, after, oracle, None, tolerance).verdict
    return {
        "metric": name,
        "meaning": metric.meaning,
        "if_never_trained_on": metric.at_oracle,
        "before": values["before"],
        "after": after,
        "expected": pool if pool is not None else metric.reference,
        "expected_spread": spread,
        "oracle": oracle,
        "tolerance": tolerance,
        "verdict": Finding(metric, after, target, spread, tolerance).verdict,
        "verdict_by_oracle": by_oracle,
    }
