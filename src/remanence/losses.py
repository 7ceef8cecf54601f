"""Losses with one value per example, and what else is read from a model's outputs: signals and correctness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.errors import InputError, UnknownNameError

ExampleLoss = Callable[[Any, Any], Tensor]
"""(outputs, targets) -> one loss per example."""
IGNORED = -100
"""The target of positions that do not count, as torch and transformers have it."""


def logits_of(outputs: Any) -> Tensor:
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
    """Cross entropy of each example; with positions (logits [n, t, classes], targets [n, t]) their mean.

    Positions whose target is -100 do not count.
    """
    logits = logits_of(outputs)
    if targets.dim() == 2 and logits.dim() == 3 and not targets.is_floating_point():
        counted = (targets != IGNORED).sum(1).clamp(min=1)
        return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").sum(1) / counted
    expected = logits.shape if targets.is_floating_point() else logits.shape[:1]
    if targets.shape != expected:
        raise InputError(
            f"`targets` must have shape {tuple(expected)} for outputs of shape {tuple(logits.shape)}; "
            f"got {tuple(targets.shape)}."
        )
    return F.cross_entropy(logits, targets, reduction="none")


def squared_error(outputs: Any, targets: Tensor) -> Tensor:
    """Half the squared distance between output and target, summed over everything but the example."""
    predictions = logits_of(outputs)
    if predictions.shape != targets.shape:
        raise InputError(
            f"`targets` must have the outputs' shape {tuple(predictions.shape)}; got {tuple(targets.shape)}."
        )
    return 0.5 * (predictions - targets).reshape(len(targets), -1).square().sum(1)


def binary_cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    """For several labels per example: the cross entropy of sigmoid(output), summed over labels; targets in [0, 1]."""
    logits = logits_of(outputs)
    if logits.shape != targets.shape or logits.dim() < 2:
        raise InputError(
            f"`targets` must have the outputs' shape {tuple(logits.shape)}, one column per label; "
            f"got {tuple(targets.shape)}."
        )
    values = F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
    return values.flatten(1).sum(1)


LOSSES: dict[str, ExampleLoss] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "squared_error": squared_error,
}


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


@dataclass(frozen=True)
class Readout:
    """What is read from a model's outputs on some examples.

    Args:
        loss: (outputs, targets) -> one loss per example.
        signal: (outputs, targets) -> one number per example that is larger for examples the model was trained on; by
            default the log-odds of the true class, or minus the loss where outputs are not classes.
        correct: (outputs, targets) -> whether the answer on each example is right; by default whether the most likely
            class is the true one, or whether all labels are right. Without it, where neither applies, there are no
            accuracies.
    """

    loss: ExampleLoss = cross_entropy
    signal: ExampleLoss | None = None
    correct: Callable[[Any, Any], Tensor] | None = None

    def losses(self, outputs: Any, targets: Any, n: int) -> Tensor:
        """One loss per example, checked."""
        return example_losses(self.loss, outputs, targets, n)

    def is_correct(self, outputs: Any, targets: Any) -> Tensor | None:
        """Whether each answer is right; None if that is not defined."""
        if self.correct is not None:
            return self.correct(outputs, targets).bool()
        logits = class_logits(outputs, targets)
        if logits is not None:
            predicted: Tensor = logits.argmax(dim=1) == targets
            return predicted
        if self.loss is binary_cross_entropy:
            right: Tensor = (logits_of(outputs) > 0) == (targets > 0.5)
            return right.flatten(1).all(dim=1)
        return None


CLOSE = 0.5
"""A predicted number is right within this many standard deviations of the training targets."""
CLASSIFICATION = Readout()
"""Cross-entropy, log-odds of the true class, most likely class."""


def class_logits(outputs: Any, targets: Any) -> Tensor | None:
    """Logits [n, classes] if the targets are whole-number classes; None for all other outputs."""
    if not isinstance(targets, Tensor) or targets.dim() != 1 or targets.is_floating_point():
        return None
    logits = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    return logits if isinstance(logits, Tensor) and logits.dim() == 2 else None


def within(tolerance: float) -> Callable[[Any, Any], Tensor]:
    """Correctness for regression: the prediction is at most `tolerance` away from the target."""

    def is_within(outputs: Any, targets: Tensor) -> Tensor:
        distance = (logits_of(outputs) - targets).abs().reshape(len(targets), -1)
        return (distance <= tolerance).all(dim=1)

    return is_within
