"""Membership inference attacks, each on one thing that a model gives away about an example."""

from __future__ import annotations

from functools import partial

from remanence.audit.attack import Attack, attack
from remanence.audit.evaluation import Evaluation

SIGNALS = {
    "mia": ("confidence", "the probability of the true class"),
    "mia_loss": ("loss", "the cross-entropy"),
    "mia_entropy": ("entropy", "the entropy of the probabilities"),
    "mia_margin": ("margin", "the log-odds of the true class"),
}
"""Metric -> the part of `Outputs` that its attacker reads, and what that is."""


def membership(evaluation: Evaluation, *, signal: str = "confidence") -> float:
    """MIA: the share of the forget set that an attacker takes for examples never trained on.

    The attacker learns to tell retain examples (members) from test examples by `signal`, equally many of each,
    cross-fitted (`attack` says exactly how), and is asked about the forget set. A larger value means better forgotten,
    up to the value that a model never trained on it has; beyond that, over-forgotten.

    Source: the paper, appendix "Evaluation metrics", which reads the confidence.
    """
    return attacked(evaluation, signal).called_outsider


def membership_accuracy(evaluation: Evaluation, *, signal: str = "confidence") -> float:
    """How well that attacker tells retain from test examples that it was not fitted on, in equal numbers."""
    return attacked(evaluation, signal).accuracy


def relative_log_odds(evaluation: Evaluation) -> float:
    """Mean log-odds of the true class on the forget set minus that on the test set: it fits a set of one."""
    return float(evaluation.forget.margin.mean() - evaluation.test.margin.mean())


def attacked(evaluation: Evaluation, signal: str) -> Attack:
    """The attack by one signal, done once an evaluation."""
    return evaluation.once(f"attack by {signal}", partial(_attack, signal=signal))


def _attack(evaluation: Evaluation, *, signal: str) -> Attack:
    members, outsiders, targets = (
        getattr(part, signal).numpy() for part in (evaluation.retain, evaluation.test, evaluation.forget)
    )
    return attack(members, outsiders, targets)
