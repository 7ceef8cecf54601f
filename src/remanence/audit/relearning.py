"""Relearning: does a model that was fine-tuned further recover the forget set faster than an oracle does?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from remanence.audit.evaluation import Evaluation
from remanence.data import Split
from remanence.errors import InputError
from remanence.tasks import Recipe


@dataclass(frozen=True)
class Recovery:
    """The forget set while a model is fine-tuned; it ends early if the copy diverges.

    Args:
        steps: steps of fine-tuning before each evaluation; the first is 0.
        accuracy: accuracy on the forget set; empty if the task does not say which answers are right.
        log_odds: mean log-odds of the true class on the forget set.
    """

    steps: tuple[int, ...]
    accuracy: tuple[float, ...]
    log_odds: tuple[float, ...]


@dataclass(frozen=True)
class Relearned:
    """What a model recovers when it is fine-tuned.

    Args:
        on_retain: fine-tuned on retained data only, for a few epochs; one recovery per learning rate.
        on_forget: fine-tuned on the forget set, for a few steps.
    """

    on_retain: tuple[Recovery, ...]
    on_forget: Recovery


Relearn = Callable[[nn.Module, Split, Recipe], Relearned]
"""Fine-tunes copies of a model that was trained with a recipe; `remanence.experiments.Relearning` is one."""


def relearn_retain(evaluation: Evaluation) -> float:
    """Accuracy on the forget set after fine-tuning on retained data only: the best of all epochs and learning rates.

    A model that was never trained on the forget set stays where it is. A model that only suppresses what it knows gets
    it back without seeing one of the examples again.

    Source: Siddiqui et al., "From Dormant to Deleted: Tamper-Resistant Unlearning Through Weight-Space
    Regularization", arXiv 2505.22310.

    Departs: the learning rates are that of training and a tenth of it, the same for every model and oracle; an
    attacker could search for the best. The oracles get the same fine-tuning and the same choice of the best epoch.
    """
    return max(_after([_accuracy(recovery) for recovery in _relearned(evaluation).on_retain]))


def relearn_retain_log_odds(evaluation: Evaluation) -> float:
    """Mean log-odds of the true class on the forget set after fine-tuning on retained data only, the best likewise."""
    return max(_after([recovery.log_odds for recovery in _relearned(evaluation).on_retain]))


def relearn_speed(evaluation: Evaluation) -> float:
    """Mean accuracy on the forget set over the first steps of fine-tuning on it: the area under the curve.

    It needs no threshold and is defined for models that never reach one. Relearning faster than an oracle shows that
    something was left (Golatkar et al., "Eternal Sunshine of the Spotless Net", CVPR 2020: relearn time).
    """
    return float(np.mean(_after([_accuracy(_relearned(evaluation).on_forget)])))


def relearn_speed_log_odds(evaluation: Evaluation) -> float:
    """Mean log-odds of the true class on the forget set over the first steps of fine-tuning on it."""
    return float(np.mean(_after([_relearned(evaluation).on_forget.log_odds])))


def _after(curves: Sequence[Sequence[float]]) -> list[float]:
    """All values after the start."""
    values = [value for curve in curves for value in curve[1:]]
    if not values:
        raise InputError("Expected a model that can be fine-tuned; its loss was no longer finite at once.")
    return values


def _accuracy(recovery: Recovery) -> tuple[float, ...]:
    if not recovery.accuracy:
        raise InputError(
            "Accuracy needs to know which answers are right; pass `correct` to the task. The log-odds need none."
        )
    return recovery.accuracy


def _relearned(evaluation: Evaluation) -> Relearned:
    if evaluation.context.relearned is None:
        raise InputError(
            "Relearning metrics need copies of the model that were fine-tuned; pass `relearning`."
        )
    return evaluation.context.relearned
