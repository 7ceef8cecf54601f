"""Membership inference attacks on the forget set, each reading one signal of the model's outputs."""

from __future__ import annotations

from functools import partial

from remanence.audit.evaluation import Evaluation
from remanence.audit.membership_attack import AttackResult, membership_attack

SIGNALS = {
    "mia": ("confidence", "the probability of the true class"),
    "mia_loss": ("loss", "the cross-entropy"),
    "mia_entropy": ("entropy", "the entropy of the probabilities"),
    "mia_margin": ("margin", "the log-odds of the true class"),
}
"""Metric -> the attribute of `Outputs` that its attacker reads, and its description."""


def membership(evaluation: Evaluation, *, signal: str = "confidence") -> float:
    """MIA: the share of the forget set that an attacker classifies as never trained on.

    The attacker is a classifier of retain examples (members) against test examples by `signal`, equally many of each,
    cross-fitted (see `membership_attack`), applied to the forget set. A larger value means better forgotten, up to the
    value of a model that was never trained on it; beyond that, over-forgotten.

    Source: the paper, appendix "Evaluation metrics", which reads the confidence.
    """
    return attack_result(evaluation, signal).called_outsider


def membership_accuracy(evaluation: Evaluation, *, signal: str = "confidence") -> float:
    """Balanced accuracy of that attacker on retain and test examples that it was not fitted on."""
    return attack_result(evaluation, signal).accuracy


def relative_log_odds(evaluation: Evaluation) -> float:
    """Mean log-odds of the true class on the forget set minus that on the test set; also for a forget set of one."""
    return float(evaluation.forget.margin.mean() - evaluation.test.margin.mean())


def attack_result(evaluation: Evaluation, signal: str) -> AttackResult:
    """The attack by one signal, run once per evaluation."""
    return evaluation.once(f"attack by {signal}", partial(_attack, signal=signal))


def _attack(evaluation: Evaluation, *, signal: str) -> AttackResult:
    members, outsiders, targets = (
        getattr(part, signal).numpy() for part in (evaluation.retain, evaluation.test, evaluation.forget)
    )
    return membership_attack(members, outsiders, targets)
