"""Membership inference attacks on the forget set, each reading one signal of the model's outputs."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from remanence.audit.evaluation import Evaluation
from remanence.audit.membership_attack import AttackResult, membership_attack

SIGNALS = {
    "mia": ("margin", "the log-odds of the true class, or the task's own signal"),
    "mia_confidence": ("confidence", "the probability of the true class, as the paper does"),
    "mia_loss": ("loss", "the loss"),
    "mia_entropy": ("entropy", "the entropy of the probabilities"),
}
"""Metric -> the attribute of `Outputs` that its attacker reads, and its description."""


def membership(evaluation: Evaluation, *, signal: str = "margin") -> float:
    """MIA: the share of the forget set that an attacker classifies as never trained on.

    The attacker is a classifier of retain examples (members) against test examples by `signal`, equally many of each,
    cross-fitted (see `membership_attack`), applied to the forget set. A larger value means better forgotten, up to the
    value of a model that was never trained on it; beyond that, over-forgotten.

    Departs from the paper, which reads the confidence itself (`mia_confidence`). Confidences of a trained network are
    nearly all close to 1, where a logistic regression on them cannot tell them apart; their log-odds are not.
    Log-odds have a limit: the threshold lies between typical members and typical test examples, and hard examples are
    below it even while they are memorized. Whether they are forgotten is judged by `mia_confidence`.

    Source: the paper, appendix "Evaluation metrics"; Carlini et al. 2022 for the log-odds.
    """
    return attack_result(evaluation, signal).called_outsider


def membership_accuracy(evaluation: Evaluation, *, signal: str = "margin") -> float:
    """Balanced accuracy of that attacker on retain and test examples that it was not fitted on."""
    return attack_result(evaluation, signal).accuracy


def membership_auc(evaluation: Evaluation) -> float:
    """The probability that a forget example has larger log-odds than a test example; ties count as one half.

    Without a threshold, so that it changes smoothly while a model forgets. One half for examples as hard as the test
    set's; harder ones that were never trained on are below.
    """
    return auc(evaluation.forget.margin.numpy(), evaluation.test.margin.numpy())


def auc(members: NDArray[np.float64], outsiders: NDArray[np.float64]) -> float:
    """Area under the ROC curve of members against outsiders by a signal that is larger for members."""
    ordered = np.sort(outsiders)
    below, not_above = (np.searchsorted(ordered, members, side) for side in ("left", "right"))
    return float((below + not_above).mean() / (2 * len(outsiders)))


def relative_log_odds(evaluation: Evaluation) -> float:
    """Mean log-odds of the true class on the forget set minus that on the test set; also for a forget set of one."""
    return float(evaluation.forget.margin.mean() - evaluation.test.margin.mean())


def forget_log_odds(evaluation: Evaluation) -> float:
    """Mean log-odds of the true class on the forget set."""
    return float(evaluation.forget.margin.mean())


def attack_result(evaluation: Evaluation, signal: str) -> AttackResult:
    """The attack by one signal, run once per evaluation."""
    return evaluation.once(f"attack by {signal}", partial(_attack, signal=signal))


def _attack(evaluation: Evaluation, *, signal: str) -> AttackResult:
    members, outsiders, targets = (
        getattr(part, signal).numpy() for part in (evaluation.retain, evaluation.test, evaluation.forget)
    )
    return membership_attack(members, outsiders, targets)
