"""The loss of each example: a name or the caller's own function, whose result is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.errors import InputError, UnknownNameError

ExampleLoss = Callable[[Any, Any], Tensor]
"""(outputs, targets) -> one loss per example."""


def _logits(outputs: Any) -> Tensor:
    """The logits of models that return an object or a tuple, as transformers do."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = outputs[0] if isinstance(outputs, (tuple, list)) else getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor):
        raise InputError(
            f"The model must return a tensor of logits for a named loss; got {type(outputs).__name__}. "
            "Pass a function (outputs, targets) -> Tensor[n] as `loss`."
        )
    return logits


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    """Cross entropy of each example; with positions (logits [n, t, classes], targets [n, t]) their mean."""
    logits = _logits(outputs)
    if targets.dim() == 2 and logits.dim() == 3 and not targets.is_floating_point():
        return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)
    expected = logits.shape if targets.is_floating_point() else logits.shape[:1]
    if targets.shape != expected:
        raise InputError(
            f"`targets` must have shape {tuple(expected)} for outputs of shape {tuple(logits.shape)}; "
            f"got {tuple(targets.shape)}."
        )
    return F.cross_entropy(logits, targets, reduction="none")


def squared_error(outputs: Any, targets: Tensor) -> Tensor:
    """Half the squared distance between output and target, summed over everything but the example."""
    predictions = _logits(outputs)
    if predictions.shape != targets.shape:
        raise InputError(
            f"`targets` must have the outputs' shape {tuple(predictions.shape)}; got {tuple(targets.shape)}."
        )
    return 0.5 * (predictions - targets).flatten(1).square().sum(1)


LOSSES: dict[str, ExampleLoss] = {"cross_entropy": cross_entropy, "squared_error": squared_error}


def loss_function(loss: str | ExampleLoss) -> ExampleLoss:
    """The function that a name stands for, or the caller's own."""
    if callable(loss):
        return loss
    if loss not in LOSSES:
        raise UnknownNameError("loss", loss, LOSSES)
    return LOSSES[loss]


def example_losses(loss: ExampleLoss, outputs: Any, targets: Any, n: int) -> Tensor:
    """One loss per example, checked."""
    values = loss(outputs, targets)
    if not isinstance(values, Tensor) or values.shape != (n,):
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(
            f"The loss must return one number per example, shape ({n},); got {got}. "
            "Does it already average over the batch? Use reduction='none'."
        )
    return values


def refuse_inference_mode() -> None:
    """Inference mode records no gradients, and nothing inside it can turn them on."""
    if torch.is_inference_mode_enabled():
        raise InputError(
            "Gradients must be recorded; torch.inference_mode() is on. Take norms outside of it."
        )


def refuse_without_gradient(values: Tensor) -> None:
    """A loss that is detached from the parameters would silently give norms of 0."""
    if not values.requires_grad:
        raise InputError(
            "The loss must depend on the chosen parameters; it requires no gradient. Does the forward pass "
            "run under torch.no_grad(), or is its output detached?"
        )
