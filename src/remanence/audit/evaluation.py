"""One forward pass, shared by every metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from remanence.data import Examples, Split

_BATCH = 256


@dataclass(frozen=True)
class Outputs:
    """What a model says about some examples."""

    logits: Tensor
    labels: Tensor

    @cached_property
    def confidence(self) -> Tensor:
        """Softmax probability of the true class."""
        return self.logits.softmax(dim=1).gather(1, self.labels[:, None])[:, 0]

    @cached_property
    def accuracy(self) -> float:
        """Share of examples whose largest logit is the true class's."""
        return (self.logits.argmax(dim=1) == self.labels).double().mean().item()


@dataclass(frozen=True)
class Evaluation:
    """A model's outputs on the three parts of a split; metrics read this and nothing else."""

    forget: Outputs
    retain: Outputs
    test: Outputs


def evaluate(model: nn.Module, split: Split) -> Evaluation:
    """Run the model once over everything, in evaluation mode; the mode it was in comes back."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return Evaluation(*(_outputs(model, part) for part in (split.forget, split.retain, split.test)))
    finally:
        model.train(was_training)


def _outputs(model: nn.Module, examples: Examples) -> Outputs:
    logits = torch.cat([model(inputs) for inputs in torch.split(examples.inputs, _BATCH)])
    return Outputs(logits, examples.labels)
