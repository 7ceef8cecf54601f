"""Tasks: how to build a model, its data, and how it is trained."""

from remanence.tasks.poison import Poison, draw_poison
from remanence.tasks.randomness import derive_seed, generator
from remanence.tasks.recipe import RECIPES, Recipe
from remanence.tasks.sources import DataSource, ModelSource, TaskSource
from remanence.tasks.task import Task

__all__ = [
    "RECIPES",
    "DataSource",
    "ModelSource",
    "Poison",
    "Recipe",
    "Task",
    "TaskSource",
    "derive_seed",
    "draw_poison",
    "generator",
]
