"""One training loop, what it records, and how it is resumed."""

from remanence.tasks import RECIPES, Poison, Recipe
from remanence.training.checkpoints import Checkpoints, load_weights, write_weights
from remanence.training.loop import Training, train_steps
from remanence.training.objective import BatchLoss, Objective, Parameters, Stream, Term, over
from remanence.training.placement import placed_steps
from remanence.training.posthoc import TraceSettings, trace_run
from remanence.training.ranks import ALONE, Ranks, joined
from remanence.training.recorder import Recorder
from remanence.training.run_folder import Run, RunReference, open_run
from remanence.training.train_run import Recording, RunSettings, train_and_record, train_run

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
    "Recording",
    "Run",
    "RunReference",
    "RunSettings",
    "Stream",
    "Term",
    "TraceSettings",
    "Training",
    "joined",
    "load_weights",
    "open_run",
    "over",
    "placed_steps",
    "trace_run",
    "train_and_record",
    "train_run",
    "train_steps",
    "write_weights",
]
