"""RMIA: a membership attack that needs one or a few reference models, here the oracles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from remanence.audit.evaluation import Evaluation
from remanence.errors import InputError

OFFLINE = 0.3
"""The paper's `a` for CIFAR-10: estimates the confidence of models trained on x from that of models that were not."""
FALSE_ALARMS = 0.05
FEWEST_TEST = 20
"""With fewer test examples, 5 % of them is less than one."""
Floats = NDArray[np.float64]


def relative_confidence(confidence: Floats, references: Floats, *, offline: float = OFFLINE) -> Floats:
    r"""P(x | w) / P(x) with reference models that were never trained on x.

    Formula: :math:`P(x) = \frac12 \big((1 + a)\, \bar P_{out}(x) + (1 - a)\big)`.

    Args:
        confidence: [m] softmax probability of the true class by the audited model.
        references: [k, m] that of each reference model.
        offline: a.
    """
    expected = 0.5 * ((1 + offline) * references.mean(axis=0) + (1 - offline))
    return np.asarray(confidence / expected)


def rmia(evaluation: Evaluation) -> float:
    r"""Share of the forget set that is recognized as trained on, with 5 % false alarms on the test set.

    Formula: the score of :math:`x` is :math:`P_z[\mathrm{LR}(x, z) \ge \gamma]` over a population of :math:`z`, with
    :math:`\mathrm{LR}(x, z) = \frac{P(x\mid w)}{P(x)} \Big/ \frac{P(z\mid w)}{P(z)}`. It increases with
    :math:`P(x\mid w) / P(x)` alone, so the threshold is put on that: its 95 % quantile on the test set.

    Source: Zarifzadeh, Liu, Shokri, "Low-Cost High-Power Membership Inference Attacks", ICML 2024 (offline RMIA).

    Departs: the reference models are the oracles, which were trained on the retain set, as the audited model was, and
    the population is the test set.
    """
    oracles = evaluation.context.oracles
    if not oracles:
        raise InputError("RMIA needs at least one oracle as reference model.")
    size = len(evaluation.test.confidence)
    if size < FEWEST_TEST:
        raise InputError(
            f"RMIA needs at least {FEWEST_TEST} test examples; got {size}. With fewer, a rate of {FALSE_ALARMS:.0%} "
            "false alarms cannot be set."
        )
    forget, test = (
        relative_confidence(
            _confidence(evaluation, part), np.stack([_confidence(oracle, part) for oracle in oracles])
        )
        for part in ("forget", "test")
    )
    threshold = np.sort(test)[-int(FALSE_ALARMS * size) - 1]
    return float((forget > threshold).mean())


def _confidence(evaluation: Evaluation, part: str) -> Floats:
    return np.asarray(getattr(evaluation, part).confidence.numpy(), dtype=np.float64)
