"""The options of a training recipe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from remanence.cli.options import LearningRate, Several

if TYPE_CHECKING:
    from remanence.training import Recipe


@Parameter(name="*", group="Recipe")
@dataclass(frozen=True)
class RecipeOptions:
    """How to train: a recipe to start from, and changes to it."""

    recipe: str = "plain"
    """Recipe to start from: plain, or paper (150 epochs, the paper's schedule); the options below change it."""
    epochs: int | None = None
    """Number of passes over the training data."""
    learning_rate: LearningRate = None
    """Initial learning rate."""
    batch_size: int | None = None
    """Number of examples per step."""
    optimizer: str | None = None
    """sgd, adam, adamw, or another class of torch.optim."""
    momentum: float | None = None
    """Momentum, for optimizers that have one."""
    weight_decay: float | None = None
    """Weight decay of the optimizer."""
    clip: float | None = None
    """Largest norm of the mini-batch gradient; larger ones are scaled down."""
    schedule: Literal["constant", "linear", "cosine", "milestones"] | None = None
    """Learning rate schedule."""
    warmup: float | None = None
    """Share of the steps in which the learning rate rises from zero."""
    milestones: Annotated[tuple[int, ...] | None, Several] = None
    """Epochs at which the learning rate drops by a factor of ten, with `--schedule milestones`."""
    noise: float | None = None
    """Standard deviation of the Gaussian noise on the mini-batch gradient (SGLD)."""
    langevin: bool | None = None
    """Scale the noise with the learning rate, as Langevin dynamics do."""
    sampling: Literal["shuffled", "poisson"] | None = None
    """How batches are drawn; a certificate needs `poisson`, which divides by a fixed batch size."""
    radius: float | None = None
    """Radius of the ball that the weights are projected onto after every step."""
    accumulate: int | None = None
    """Number of parts that each batch is split into, to save memory."""
    augment: bool | None = None
    """Augment images by random crops and flips."""
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    """Data type of automatic mixed precision."""
    channels_last: bool | None = None
    """Use the channels-last memory format for images."""
    compile: bool | None = None
    """Compile the model with torch.compile."""

    def make(self) -> Recipe:
        """The recipe that the options describe."""
        from remanence.errors import UnknownNameError
        from remanence.training import RECIPES

        if self.recipe not in RECIPES:
            raise UnknownNameError("recipe", self.recipe, RECIPES)
        changes = {
            name: value for name, value in vars(self).items() if name != "recipe" and value is not None
        }
        return replace(RECIPES[self.recipe], **changes)
