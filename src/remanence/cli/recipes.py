"""Options that change a recipe, shared by the commands that train."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from remanence.training import Recipe


@Parameter(name="*", group="Recipe")
@dataclass(frozen=True)
class RecipeOptions:
    """How to train: a recipe to start from, and what to change in it."""

    recipe: str = "plain"
    """Settings to start from: plain, or paper (150 epochs, the paper's schedule); the options below change them."""
    epochs: int | None = None
    """Passes over the data."""
    learning_rate: Annotated[float | None, Parameter(name=["--learning-rate", "--lr"])] = None
    """At the start."""
    batch_size: int | None = None
    """Examples a step."""
    momentum: float | None = None
    """Of SGD."""
    weight_decay: float | None = None
    """Of SGD."""
    schedule: Literal["constant", "cosine", "milestones"] | None = None
    """How the learning rate changes."""
    milestones: Annotated[tuple[int, ...] | None, Parameter(negative="", consume_multiple=True)] = None
    """Epochs at which it drops by a factor of ten."""
    noise: float | None = None
    """Standard deviation of Gaussian noise on the mini-batch gradient (SGLD)."""
    langevin: bool | None = None
    """Scale the noise as Langevin dynamics do."""
    sampling: Literal["shuffled", "poisson"] | None = None
    """Poisson sampling with a fixed denominator is what a certificate needs."""
    radius: float | None = None
    """Project the weights onto a ball."""
    accumulate: int | None = None
    """Split each batch to save memory."""
    augment: bool | None = None
    """Random crops and flips."""
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    """Autocast."""
    channels_last: bool | None = None
    """Memory format of images."""
    compile: bool | None = None
    """Use torch.compile."""


def recipe_from(given: RecipeOptions) -> Recipe:
    """The recipe that the options describe."""
    from remanence.errors import UnknownNameError
    from remanence.training import RECIPES

    if given.recipe not in RECIPES:
        raise UnknownNameError("recipe", given.recipe, RECIPES)
    changes = {name: value for name, value in vars(given).items() if name != "recipe" and value is not None}
    return replace(RECIPES[given.recipe], **changes)
