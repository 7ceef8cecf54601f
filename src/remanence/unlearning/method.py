"""The base class of unlearning methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from remanence.data import Split
from remanence.training import SINGLE_PROCESS, Ranks, Recipe, Training


@dataclass(frozen=True)
class Method(ABC):
    """An unlearning method: hyperparameters, and a call that unlearns a model in place.

    The call yields after every step, with the number of steps taken. The caller measures between steps, and stops by
    not asking for more. The same seed gives the same steps, whatever the caller does between them.

    A method is an objective for the training loop. Its state is step, weights and momentum; anything else that it needs
    (a teacher, a mask) is computed from the original model. To resume after an interruption, call `begin` with the
    original model and restore a checkpoint. Methods that reset weights do so in the first step, so that a measurement
    after 0 steps is of the original model; only retrain draws its weights at once.

    The running statistics of BatchNorm follow the batches of the method, as in the papers, where the model is in
    training mode throughout: batches of the retain set for methods that use nothing else, of the forget set for
    gradient ascent, of both for the others. Teacher and mask are computed in evaluation mode and do not change them.

    Args:
        recipe: hyperparameters of training: learning rate, epochs, batch size and so on.
    """

    recipe: Recipe

    EPOCHS: ClassVar[int] = 25
    LEARNING_RATE: ClassVar[float | None] = 0.01
    """The default learning rate; None for that of training."""
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {"learning_rate": (1e-4, 0.5)}
    """Hyperparameters to tune, each with its range on a logarithmic scale."""

    @abstractmethod
    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        """The unlearning run before its first step.

        Args:
            model: the original model, which is changed in place.
            split: the examples to forget and to retain; never changed.
            seed: random seed for the batch order and all other random draws.
            ranks: the processes that share the work.
        """

    def __call__(
        self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS
    ) -> Iterator[int]:
        """Unlearn; after each step, yield the number of steps taken so far."""
        return self.begin(model, split, seed=seed, ranks=ranks).steps()

    @classmethod
    def default_recipe(cls, training: Recipe) -> Recipe:
        """The recipe of training, with the epochs of the method, its constant learning rate, and no noise.

        With other optimizers than SGD, whose learning rates are smaller, that of training is kept if it is smaller.
        """
        plain = training.optimizer.lower() == "sgd"
        own = training.learning_rate if cls.LEARNING_RATE is None else cls.LEARNING_RATE
        rate = own if plain else min(own, training.learning_rate)
        return replace(
            training,
            epochs=cls.EPOCHS,
            learning_rate=rate,
            warmup=0.0,
            schedule="constant",
            milestones=(),
            noise=0.0,
            langevin=False,
        )
