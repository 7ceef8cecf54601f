"""Metrics of predicted classes: UA, RA, test accuracy, and disagreement with oracles."""

from __future__ import annotations

from remanence.audit.evaluation import Evaluation
from remanence.errors import InputError


def unlearning_accuracy(evaluation: Evaluation) -> float:
    """UA: one minus the accuracy on the forget set."""
    return 1.0 - evaluation.forget.accuracy


def retain_accuracy(evaluation: Evaluation) -> float:
    """RA: accuracy on the training examples that stay."""
    return evaluation.retain.accuracy


def test_accuracy(evaluation: Evaluation) -> float:
    """Accuracy on data that no model was trained on."""
    return evaluation.test.accuracy


test_accuracy.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it as a test


def disagreement(evaluation: Evaluation) -> float:
    """The share of the forget set on which the model predicts another class than an oracle, averaged over oracles."""
    oracles = evaluation.context.oracles
    if not oracles:
        raise InputError("Disagreement needs oracles: models trained without the forget set.")
    predicted = evaluation.forget.predicted
    shares = [(predicted != oracle.forget.predicted).double().mean().item() for oracle in oracles]
    return sum(shares) / len(shares)
