"""What an evidence document says was measured: before, after, and beside models that never saw the examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from remanence.audit import METRICS, Context, Evaluation, evaluate
from remanence.audit.auditing import Finding
from remanence.requests.plan import Plan
from remanence.training import Run

ALWAYS = ("mia", "log_odds", "ua", "ra", "test", "mia_accuracy", "mia_loss", "mia_entropy", "mia_margin")
POISONED = ("gus", "gus_z")


def findings(run: Run, plan: Plan, unlearned: nn.Module, oracle: Run | None) -> list[dict[str, Any]]:
    """Every metric that can be computed, before and after, beside what the pool expects and what an oracle shows."""
    split = run.split(plan.request.forget_set)
    context = Context(poison=run.poison, clean=run.clean[0])
    models = {"before": run.model(), "after": unlearned} | (
        {} if oracle is None else {"oracle": oracle.model()}
    )
    seen = {name: evaluate(model, split, context) for name, model in models.items()}
    names = (*ALWAYS, *(POISONED if planted(run, plan) else ()))
    return [_row(name, seen, plan) for name in names]


def planted(run: Run, plan: Plan) -> bool:
    """Whether some of the examples were trained with noise that can be looked for."""
    return run.poison is not None and bool(np.isin(plan.request.ids, run.poison.ids).any())


def not_measured(run: Run, plan: Plan, oracle: Run | None) -> list[str]:
    """What was not measured, and why."""
    said = []
    if not planted(run, plan):
        said.append(
            "GUS: none of these examples was trained with planted noise (`remanence train --poison`), so there is no "
            "noise to look for."
        )
    if oracle is None:
        said.append(
            "No model was retrained for comparison (`remanence forget --oracle`); what one would show is estimated "
            "from the reference models of the calibration."
        )
    return said


def _row(name: str, seen: Mapping[str, Evaluation], plan: Plan) -> dict[str, Any]:
    metric = METRICS[name]
    values = {which: metric(evaluation) for which, evaluation in seen.items()}
    pool = {"mia": plan.expected.mia, "log_odds": plan.expected.log_odds}.get(name)
    spread = {"mia": plan.expected.mia_spread, "log_odds": plan.expected.log_odds_spread}.get(name)
    beside = pool if pool is not None else values.get("oracle", metric.reference)
    scale = metric.tolerance_for(seen["after"])
    if name == plan.criterion.metric:
        scale = plan.criterion.tolerance
    finding = Finding(metric, values["after"], beside, spread, scale)
    judged = (
        finding if "oracle" not in values else Finding(metric, values["after"], values["oracle"], None, scale)
    )
    return {
        "metric": name,
        "meaning": metric.meaning,
        "if_never_trained_on": metric.at_oracle,
        "before": values["before"],
        "after": values["after"],
        "expected": pool if pool is not None else metric.reference,
        "expected_spread": spread,
        "oracle": values.get("oracle"),
        "tolerance": scale,
        "verdict": finding.verdict,
        "verdict_by_oracle": judged.verdict if "oracle" in values else None,
    }
