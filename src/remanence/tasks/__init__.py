"""Tasks: how to build a model, its data, and how it is trained."""

from remanence.tasks.poison import Poison, draw_poison
from remanence.tasks.randomness import derive_seed, generator
from remanence.tasks.recipe import ASSUMED_SIGMA, RECIPES, Recipe
from remanence.tasks.sources import DataSource, ModelSource, TaskSource
from remanence.tasks.task import Task, as_examples

__all__ = [
    "ASSUMED_SIGMA",
    "RECIPES",
    "DataSource",
    "ModelSource",
    "Poison",
    "Recipe",
    "Task",
    "TaskSource",
    "as_examples",
    "derive_seed",
    "draw_poison",
    "generator",
]
