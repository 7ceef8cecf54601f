"""Accuracies: UA on the forget set (one minus accuracy), RA on the retain set, and utility on the test set."""

from __future__ import annotations

from remanence.audit.evaluation import Evaluation


def unlearning_accuracy(evaluation: Evaluation) -> float:
    """UA: the share of the forget set that the model gets wrong."""
    return 1.0 - evaluation.forget.accuracy


def retain_accuracy(evaluation: Evaluation) -> float:
    """RA: accuracy on the training examples that stay."""
    return evaluation.retain.accuracy


def test_accuracy(evaluation: Evaluation) -> float:
    """Accuracy on data that no model was trained on."""
    return evaluation.test.accuracy


test_accuracy.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test
