"""What every unlearning method is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torch import nn

from remanence.data import Split


class Method(Protocol):
    """Changes, in place, a copy of the model that its caller made; yields after every step.

    Stopping and measuring belong to the caller, who simply stops asking for more steps. The same seed
    gives the same steps, whatever the caller does between them.
    """

    def __call__(self, model: nn.Module, split: Split, *, seed: int) -> Iterator[int]:
        """Yield the number of steps taken so far, after each step."""
        ...
