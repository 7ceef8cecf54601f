"""One training loop, what it records, and how it survives a kill."""

from remanence.training.checkpoints import Checkpoints, load_weights, write_weights
from remanence.training.loop import Training, train_steps
from remanence.training.placement import placed_steps
from remanence.training.ranks import ALONE, Ranks, joined
from remanence.training.recipe import RECIPES, Recipe
from remanence.training.recorder import Recorder

__all__ = [
    "ALONE",
    "RECIPES",
    "Checkpoints",
    "Ranks",
    "Recipe",
    "Recorder",
    "Training",
    "joined",
    "load_weights",
    "placed_steps",
    "train_steps",
    "write_weights",
]
