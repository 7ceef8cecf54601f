"""The lower bound on ε of a run that was trained with canaries, as a metric."""

from __future__ import annotations

import torch

from remanence.audit.evaluation import Evaluation, model_outputs
from remanence.audit.one_run import OneRunBound, one_run_bound
from remanence.errors import InputError
from remanence.gradients.evaluation_mode import evaluating


def one_run_epsilon(evaluation: Evaluation) -> float:
    """With 95 % confidence, training was not ε-differentially private for any ε below this value (δ = 0)."""
    return bound_of(evaluation).epsilon


def bound_of(evaluation: Evaluation) -> OneRunBound:
    """The bound with the numbers that it comes from; the canaries go through the model once."""
    return evaluation.once("one run", _compute)


def _compute(evaluation: Evaluation) -> OneRunBound:
    canaries = evaluation.context.canaries
    if canaries is None or evaluation.model is None:
        raise InputError(
            "A lower bound on ε from one run needs canaries: examples that a coin included in training (`canaries`)."
        )
    with evaluating(evaluation.model), torch.no_grad():
        outputs = model_outputs(evaluation.model, canaries.examples)
    return one_run_bound(outputs.margin.numpy(), canaries.included)
