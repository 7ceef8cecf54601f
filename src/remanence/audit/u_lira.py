"""U-LiRA: a likelihood-ratio attack whose shadow models are unlearned by the method under test."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from remanence.audit.context import ShadowTable
from remanence.audit.evaluation import Evaluation
from remanence.errors import InputError

OWN_VARIANCE = 16
"""With at least this many shadow models of a kind, every example has its own variance; otherwise all share one."""
_LEAST_VARIANCE = 1e-6
Floats = NDArray[np.float64]


def likelihood_ratios(table: ShadowTable, signal: Floats) -> Floats:
    """For each example, log p(signal | trained on, then unlearned) − log p(signal | never trained on).

    Both densities are normal, with the example's mean over the shadows of that kind. Above zero, the model looks like
    those that were trained on the example.

    Args:
        table: the shadows.
        signal: [m] log-odds of the true class by the audited model, for the table's examples in their order.
    """
    inside, outside = (_log_density(signal, table, kind) for kind in (table.member, ~table.member))
    return inside - outside


def _log_density(signal: Floats, table: ShadowTable, kind: NDArray[np.bool_]) -> Floats:
    count = kind.sum(axis=0)
    mean = (table.signal * kind).sum(axis=0) / count
    squares = (np.square(table.signal - mean) * kind).sum(axis=0)
    shared = squares.sum() / (count - 1).sum()
    variance = np.maximum(np.where(count >= OWN_VARIANCE, squares / (count - 1), shared), _LEAST_VARIANCE)
    density: Floats = -0.5 * (np.square(signal - mean) / variance + np.log(2 * np.pi * variance))
    return density


@lru_cache(maxsize=8)  # a property of the method: the same at every evaluation
def attack_accuracy(table: ShadowTable) -> float:
    """Balanced accuracy of the attack on the shadow models, each attacked with the others.

    One half when unlearned examples cannot be distinguished from examples that were never seen.
    """
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for row in range(len(table.member)):
        others = np.arange(len(table.member)) != row
        member, rest = table.member[row], table.member[others]
        inside = rest.sum(axis=0)
        usable = (inside >= 2) & (len(rest) - inside >= 2)
        part = ShadowTable(table.ids[usable], rest[:, usable], table.signal[others][:, usable])
        called = likelihood_ratios(part, table.signal[row, usable]) > 0
        for truth in (True, False):
            hits[truth] += (called == truth)[member[usable] == truth].tolist()
    if not hits[True] or not hits[False]:
        raise InputError("The attack's accuracy needs at least three shadow models of each kind.")
    return float(np.mean([np.mean(correct) for correct in hits.values()]))


def u_lira(evaluation: Evaluation) -> float:
    """The share of the forget set that the attack classifies as trained on."""
    table = _table(evaluation)
    ids = np.asarray([]) if evaluation.split is None else evaluation.split.forget.ids
    row_of = {example: row for row, example in enumerate(ids.tolist())}
    if not set(table.ids.tolist()) <= row_of.keys():
        raise InputError("The shadow models were made for other examples than this forget set.")
    rows = [row_of[example] for example in table.ids.tolist()]
    return float((likelihood_ratios(table, evaluation.forget.margin.numpy()[rows]) > 0).mean())


def u_lira_accuracy(evaluation: Evaluation) -> float:
    """Balanced accuracy of the attack against the method, on shadow models, whose members are known."""
    return attack_accuracy(_table(evaluation))


def _table(evaluation: Evaluation) -> ShadowTable:
    if evaluation.context.shadows is None:
        raise InputError("U-LiRA needs shadow models that were unlearned by the same method; pass `shadows`.")
    return evaluation.context.shadows
