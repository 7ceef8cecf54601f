"""The signals of the verdict, read from a model on the half of the data that the stopping attack never saw."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import nn

from remanence.audit import Context, Evaluation, evaluate
from remanence.audit.membership import attack_result
from remanence.data import Split
from remanence.experiments import half_of, sampled
from remanence.forecast import STOPPING, ReferencePool
from remanence.requests.criterion import SAMPLE, STOPPING_HALF
from remanence.requests.verdict import DECIDING, Excess, Verdict, judge_signals

VERDICT_HALF = 1 - STOPPING_HALF
Floats = NDArray[np.float64]


def signals_of(evaluation: Evaluation) -> dict[str, Floats]:
    """[m] by name, the signals of the forget set; the evaluation must be on the half of the verdict."""
    signals = {"log_odds": (evaluation.forget.margin - evaluation.test.margin.mean()).numpy()}
    if evaluation.forget.has_one_label:
        own, unseen = (part.predicted_margin for part in (evaluation.forget, evaluation.test))
        signals[DECIDING] = (own - unseen.mean()).numpy()
    return signals


def stopping_outputs(evaluation: Evaluation) -> dict[str, Floats]:
    """[m] the log-odds and the calls of the stopping attack on the forget set, evaluated on the stopping half."""
    return {
        "log_odds": (evaluation.forget.margin - evaluation.test.margin.mean()).numpy(),
        "calls": attack_result(evaluation, "confidence").calls,
    }


def stopping_excess(model: nn.Module, split: Split, pool: ReferencePool) -> Excess:
    """The excess that decides when unlearning stops.

    Args:
        model: the model before unlearning.
        split: the stopping half of the data, with the examples in question as its forget set.
        pool: the reference models.
    """
    before = stopping_outputs(evaluate(model, split))["log_odds"]
    return Excess.of(before, pool.expect_signal(STOPPING, split.forget.ids))


def excess_context(excess: Excess) -> Context:
    """What is needed to measure this excess while unlearning."""
    return Context(excess=lambda evaluation: excess(stopping_outputs(evaluation)["log_odds"]))


def judge_model(
    before: nn.Module, after: nn.Module, split: Split, pool: ReferencePool, *, seed: int, looks: int = 1
) -> Verdict:
    """The verdict on the forget set of a split.

    Args:
        before: the model before unlearning.
        after: the model after unlearning.
        split: the data of the run before unlearning, with the examples in question as its forget set.
        pool: the reference models.
        seed: random seed of the sample of retain and test examples.
        looks: number of verdicts on this request so far, this one included.
    """
    watched = sampled(half_of(split, VERDICT_HALF), SAMPLE, seed)
    expected = {name: pool.expect_signal(name, watched.forget.ids) for name in pool.signals}
    return judge_signals(
        signals_of(evaluate(before, watched)), signals_of(evaluate(after, watched)), expected, looks=looks
    )
