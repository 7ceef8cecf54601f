"""What can be seen of a training that no theorem covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from remanence.tasks.recipe import couples_examples
from remanence.types import Mechanism


def noted_mechanism(
    mechanism: Mechanism,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    departures: Sequence[str] = (),
) -> Mechanism:
    """The mechanism, with what model and optimizer show of the training and what the user says of it.

    Args:
        mechanism: as the user states it.
        model: the model, to see whether its layers couple examples.
        optimizer: the optimizer, if known.
        departures: further sentences, such as "Training used mixup.".
    """
    seen = list(departures)
    if optimizer is not None and not isinstance(optimizer, torch.optim.SGD):
        name = type(optimizer).__name__
        seen.append(
            f"Training used {name}, which rescales gradients by earlier ones; the recorded norms are those of plain "
            "gradients."
        )
    coupled = mechanism.couples_examples or couples_examples(model.modules())
    return replace(mechanism, couples_examples=coupled, departures=(*mechanism.departures, *seen))
