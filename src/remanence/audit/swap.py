"""The SWAP test: can an attacker tell unlearned examples from unseen ones, with both roles swapped?"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from remanence.audit.context import ShadowTable
from remanence.audit.evaluation import Evaluation
from remanence.errors import InputError

FEWEST_PAIRS = 2
Floats = NDArray[np.float64]


@lru_cache(maxsize=8)  # a property of the method: the same at every evaluation
def swap_advantage(table: ShadowTable) -> float:
    r"""Advantage of an attacker who reads the log-odds; 0 for retraining, 1 for certain recognition.

    Formula: for a pair of shadow models, the first of which was trained on half F of the forget set and unlearned it
    while it never saw half T, and the second the other way round, the advantage of an attacker A is
    :math:`\frac12 \big(P_1[A(F)] - P_1[A(T)] + P_2[A(T)] - P_2[A(F)]\big)`, where :math:`P_i[A(X)]` is the share of X
    that A calls unlearned in model :math:`i`. Whatever makes F easier or harder than T cancels, so that exact
    unlearning has advantage 0.

    Args:
        table: shadow models in pairs with complementary halves, as `train_shadows` makes them.

    The attacker calls an example unlearned whose log-odds are above a threshold, or below one; which, is chosen on the
    other pairs. So at least two pairs are needed.

    Source: Tu, Hu, Ma, "Towards Reliable Empirical Machine Unlearning Evaluation", arXiv 2404.11577 (the SWAP test of
    the unlearning sample inference game).

    Departs: the attacker is chosen on other pairs, so that noise alone has advantage 0 on average, where the best
    attacker on the same pair always finds some; the halves are halves of the forget set, where the paper swaps the
    forget set with as many test examples.
    """
    first, second = table.member[::2], table.member[1::2]
    if len(first) != len(second) or (first == second).any():
        raise InputError("Expected shadow models in pairs that are trained on complementary halves.")
    if len(first) < FEWEST_PAIRS:
        raise InputError(
            f"The SWAP test needs at least {2 * FEWEST_PAIRS} shadow models, two pairs; got {len(table.member)}. With "
            "one pair, the attacker would be chosen on the models that he attacks, and win by chance alone."
        )
    thresholds = np.unique(table.signal)
    curves = np.stack(
        [_advantages(table.signal[2 * i : 2 * i + 2], first[i], thresholds) for i in range(len(first))]
    )
    total = curves.sum(axis=0)
    achieved = []
    for curve in curves:
        others = total - curve
        best = int(np.abs(others).argmax())
        achieved.append(curve[best] * np.sign(others[best]))
    return float(np.mean(achieved))


def _advantages(signal: Floats, member: NDArray[np.bool_], thresholds: Floats) -> Floats:
    """The advantage with every threshold, of an attacker who calls what is above it unlearned."""
    unlearned = np.concatenate([signal[0, member], signal[1, ~member]])
    unseen = np.concatenate([signal[0, ~member], signal[1, member]])
    below = [
        np.searchsorted(np.sort(values), thresholds, side="right") / len(values)
        for values in (unlearned, unseen)
    ]
    return np.asarray(below[1] - below[0])


def swap(evaluation: Evaluation) -> float:
    """The advantage against the method that unlearned the evaluated model, from shadow models."""
    if evaluation.context.shadows is None:
        raise InputError(
            "The SWAP test needs shadow models that were unlearned by the same method; pass `shadows`."
        )
    return swap_advantage(evaluation.context.shadows)
