"""What every unlearning method is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from remanence.data import Split
from remanence.training import ALONE, Ranks, Recipe, Training


@dataclass(frozen=True)
class Method(ABC):
    """Hyperparameters, and a call that changes, in place, a copy of the model that its caller made.

    The call yields the number of steps taken after each of them. Stopping and measuring belong to the caller, who
    simply stops asking for more. The same seed gives the same steps, whatever the caller does between them.

    A method is an objective for the one training loop. Its state is that of any training: step, weights and momentum;
    what else it needs (a teacher, a mask) it makes of the model it is given. So to go on after a kill, `begin` from the
    original model and restore a checkpoint.

    BatchNorm's running statistics follow the batches that the method steps on, as in all the papers, where the model
    is in training mode throughout: the retain set's for methods that read nothing else, the forget set's for gradient
    ascent, both for the others. What is made of the original model is made in evaluation mode and leaves them alone.
    """

    recipe: Recipe

    EPOCHS: ClassVar[int] = 25
    LEARNING_RATE: ClassVar[float] = 0.01
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {"learning_rate": (1e-4, 0.5)}
    """Hyperparameters worth tuning and the range to look in, on a logarithmic scale."""

    @abstractmethod
    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """The run that unlearns, before its first step.

        Args:
            model: as it was before unlearning; changed in place.
            split: what to forget and what to keep; never changed.
            seed: of everything random.
            ranks: the processes that share the work.
        """

    def __call__(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Iterator[int]:
        """Unlearn; yield the number of steps taken so far, after each step."""
        return self.begin(model, split, seed=seed, ranks=ranks).steps()

    @classmethod
    def usual_recipe(cls, training: Recipe) -> Recipe:
        """As the model was trained, with the method's own length and a constant learning rate, and no noise."""
        return replace(
            training,
            epochs=cls.EPOCHS,
            learning_rate=cls.LEARNING_RATE,
            schedule="constant",
            milestones=(),
            noise=0.0,
            langevin=False,
        )
