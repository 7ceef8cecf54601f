"""One forward pass over forget, retain and test data, shared by all metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from remanence.audit.context import NO_CONTEXT, Context
from remanence.data import Examples, Split
from remanence.gradients.evaluation_mode import evaluating

_BATCH = 256
_LARGEST_MARGIN = 100.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Outputs:
    """A model's outputs on some examples. Everything but the logits is computed on first access."""

    logits: Tensor
    labels: Tensor

    @cached_property
    def log_probabilities(self) -> Tensor:
        """[n, classes], in double precision, so that confidences close to 1 still differ."""
        return self.logits.double().log_softmax(dim=1)

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
        entropy: Tensor = torch.special.entr(self.log_probabilities.exp()).sum(dim=1)
        return entropy

    @cached_property
    def margin(self) -> Tensor:
        """The true class's logit minus the log-sum-exp of the others: the log-odds of the confidence, within ±100."""
        logits = self.logits.double()
        true = logits.gather(1, self.labels[:, None])
        others = logits.scatter(1, self.labels[:, None], -torch.inf).logsumexp(dim=1)
        return (true[:, 0] - others).clamp(-_LARGEST_MARGIN, _LARGEST_MARGIN)

    @cached_property
    def predicted(self) -> Tensor:
        return self.logits.argmax(dim=1)

    @cached_property
    def accuracy(self) -> float:
        return (self.predicted == self.labels).double().mean().item()


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
        forget, retain, test = (_outputs(model, part) for part in (split.forget, split.retain, split.test))
    return Evaluation(forget, retain, test, model, split, context)


def _outputs(model: nn.Module, examples: Examples) -> Outputs:
    logits = torch.cat([model(inputs) for inputs in torch.split(examples.inputs, _BATCH)])
    return Outputs(logits, examples.labels)
