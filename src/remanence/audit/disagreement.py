"""How often a model answers otherwise than oracles do."""

from __future__ import annotations

from remanence.audit.evaluation import Evaluation
from remanence.errors import InputError


def disagreement(evaluation: Evaluation) -> float:
    """The share of the forget set on which the model's answer is not the oracle's, the mean over oracles."""
    oracles = evaluation.context.oracles
    if not oracles:
        raise InputError("Disagreement needs oracles: models trained without the forget set (--oracles).")
    shares = [
        (evaluation.forget.predicted != each.forget.predicted).double().mean().item() for each in oracles
    ]
    return sum(shares) / len(shares)
