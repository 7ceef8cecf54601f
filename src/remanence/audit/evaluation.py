"""One forward pass over forget, retain and test data, shared by all metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.audit.context import NO_CONTEXT, Context
from remanence.batches import call, device_of, moved, size_of
from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.gradients.evaluation_mode import evaluating
from remanence.losses import CLASSIFICATION, Readout, class_logits, example_losses

_BATCH = 256
_MATRIX = 2
_LARGEST_MARGIN = 100.0
_SMALLEST_LOG = -1000.0
"""The exponential of this is 0 in double precision."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Outputs:
    """A classifier's outputs on some examples, on the CPU. Everything but the logits is computed on first access.

    Args:
        logits: [n, classes].
        labels: [n] class numbers.
    """

    logits: Tensor
    labels: Tensor

    def rows(self, chosen: NDArray[np.bool_]) -> Self:
        """The outputs on some of the examples."""
        mask = torch.from_numpy(chosen)
        parts = {item.name: getattr(self, item.name) for item in fields(self)}
        return replace(
            self, **{name: part[mask] for name, part in parts.items() if part is not None and len(part)}
        )

    @cached_property
    def log_probabilities(self) -> Tensor:
        """[n, classes], in double precision, so that confidences close to 1 still differ.

        Computed on the transpose: with few classes, sums across examples are several times as fast.
        """
        return self.logits.double().T.contiguous().log_softmax(dim=0).T

    @cached_property
    def probabilities(self) -> Tensor:
        """[n, classes], in double precision."""
        return self.log_probabilities.exp()

    @cached_property
    def loss(self) -> Tensor:
        """Cross-entropy per example."""
        return -self.log_probabilities.gather(1, self.labels[:, None])[:, 0]

    @cached_property
    def confidence(self) -> Tensor:
        """Softmax probability of the true class."""
        return (-self.loss).exp()

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of the softmax probabilities, in nats."""
        # a class that is ruled out has a probability of 0 and a logarithm of minus infinity
        return -(self.probabilities * self.log_probabilities.clamp_min(_SMALLEST_LOG)).sum(dim=1)

    @property
    def has_one_label(self) -> bool:
        """Whether the outputs are probabilities of classes, of which one is true."""
        return bool(self.logits.ndim == _MATRIX and self.labels.ndim == 1)

    @cached_property
    def predicted_margin(self) -> Tensor:
        """The log-odds of the most likely class, whatever the true one is, within ±100."""
        if not self.has_one_label:
            raise InputError(
                "The log-odds of the predicted class need a classifier with one label per example."
            )
        logits = self.logits.double()
        highest, chosen = logits.max(dim=1)
        others = logits.scatter(1, chosen[:, None], -torch.inf).logsumexp(dim=1)
        return (highest - others).clamp(-_LARGEST_MARGIN, _LARGEST_MARGIN)

    @cached_property
    def margin(self) -> Tensor:
        """The log-odds of the confidence, within ±100.

        The probabilities of the other classes are summed: one minus the confidence would be 0 long before their sum is.
        """
        others = self.probabilities.scatter(1, self.labels[:, None], 0).sum(dim=1)
        return (-self.loss - others.log()).clamp(-_LARGEST_MARGIN, _LARGEST_MARGIN)

    @cached_property
    def predicted(self) -> Tensor:
        return self.logits.argmax(dim=1)

    @cached_property
    def accuracy(self) -> float:
        return (self.predicted == self.labels).double().mean().item()


@dataclass(frozen=True)
class OtherOutputs(Outputs):
    """What was read from outputs by a task's own loss, signal or correctness; on the CPU.

    Args:
        logits: [n, classes], or empty if the outputs are not classes.
        labels: [n] class numbers, or empty.
        losses: [n] the task's loss.
        signals: [n] the task's signal; None for the default.
        correct: [n] whether each answer is right; None if that is not defined.
    """

    losses: Tensor
    signals: Tensor | None = None
    correct: Tensor | None = None

    @cached_property
    def log_probabilities(self) -> Tensor:
        if not len(self.logits):
            raise InputError("Probabilities of classes are needed; the outputs of this task are not classes.")
        return super().log_probabilities

    @cached_property
    def loss(self) -> Tensor:
        """The task's loss of each example."""
        return self.losses.double()

    @cached_property
    def confidence(self) -> Tensor:
        """The probability that belongs to the margin."""
        return self.margin.sigmoid()

    @cached_property
    def margin(self) -> Tensor:
        """The task's signal; by default the log-odds of the true class, or minus the loss if there are no classes."""
        if self.signals is not None:
            return self.signals.double().clamp(-_LARGEST_MARGIN, _LARGEST_MARGIN)
        if len(self.logits):
            return Outputs(self.logits, self.labels).margin
        return -self.loss.clamp(-_LARGEST_MARGIN, _LARGEST_MARGIN)

    @cached_property
    def predicted(self) -> Tensor:
        """The most likely class, or whether the answer is right."""
        return Outputs(self.logits, self.labels).predicted if len(self.logits) else self._judged()

    @cached_property
    def accuracy(self) -> float:
        return self._judged().double().mean().item()

    def _judged(self) -> Tensor:
        if self.correct is None:
            raise InputError(
                "Accuracy needs to know which answers are right; pass `correct` to the task, a function (outputs, "
                "targets) -> one yes or no per example."
            )
        return self.correct


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model's outputs on the three parts of a split; metrics read this and nothing else.

    Args:
        forget: on the examples to forget.
        retain: on the training examples that stay.
        test: on data that no model was trained on.
        model: the model itself, for metrics that need more than its outputs (GUS); compute them before it changes.
        split: the examples.
        context: what is shared between evaluations: oracles, poison, shadow models.
    """

    forget: Outputs
    retain: Outputs
    test: Outputs
    model: nn.Module | None = None
    split: Split | None = None
    context: Context = NO_CONTEXT
    _shared: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, compute: Callable[[Evaluation], _T]) -> _T:
        """A value that several metrics read, computed for the first of them."""
        if name not in self._shared:
            self._shared[name] = compute(self)
        value: _T = self._shared[name]
        return value


def evaluate(model: nn.Module, split: Split, context: Context = NO_CONTEXT) -> Evaluation:
    """Run the model over all data in evaluation mode; its own mode is restored."""
    with evaluating(model), torch.no_grad():
        forget, retain, test = (
            model_outputs(model, part) for part in (split.forget, split.retain, split.test)
        )
    return Evaluation(forget, retain, test, model, split, context)


def model_outputs(model: nn.Module, examples: Examples) -> Outputs:
    """The outputs on some examples; the caller has set evaluation mode and turned gradients off."""
    device = device_of(model)
    parts = [
        _read(examples.readout, call(model, inputs), targets)
        for inputs, targets in (moved(batch, device) for batch in examples.batches(_BATCH))
    ]
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if joined.keys() == {"logits", "labels"}:
        return Outputs(joined["logits"], joined["labels"])
    none = torch.empty(0)
    return OtherOutputs(joined.pop("logits", none), joined.pop("labels", none), **joined)


def _read(readout: Readout, outputs: Any, targets: Any) -> dict[str, Tensor]:
    """What is kept of one batch: the logits, or what the task's own functions give."""
    logits = class_logits(outputs, targets)
    kept = {} if logits is None else {"logits": logits, "labels": targets}
    if readout != CLASSIFICATION or logits is None:
        kept["losses"] = readout.losses(outputs, targets, size_of(targets))
        correct = readout.is_correct(outputs, targets)
        if correct is not None:
            kept["correct"] = correct
        if readout.signal is not None:
            kept["signals"] = example_losses(readout.signal, outputs, targets, size_of(targets))
    return {name: tensor.detach().cpu() for name, tensor in kept.items()}
