"""One training loop, what it records, and how it survives a kill."""

from remanence.training.checkpoints import Checkpoints, load_weights, write_weights
from remanence.training.loop import Training, train_steps
from remanence.training.objective import BatchLoss, Objective, Parameters, Stream, Term, over
from remanence.training.opened import Run, open_run
from remanence.training.placement import placed_steps
from remanence.training.poison import Poison
from remanence.training.ranks import ALONE, Ranks, joined
from remanence.training.recipe import RECIPES, Recipe
from remanence.training.recorder import Recorder

__all__ = [
    "ALONE",
    "RECIPES",
    "BatchLoss",
    "Checkpoints",
    "Objective",
    "Parameters",
    "Poison",
    "Ranks",
    "Recipe",
    "Recorder",
    "Run",
    "Stream",
    "Term",
    "Training",
    "joined",
    "load_weights",
    "open_run",
    "over",
    "placed_steps",
    "train_steps",
    "write_weights",
]
