"""The training loop, the recorder of traces, and runs in folders that can be resumed."""

from remanence.tasks import RECIPES, Poison, Recipe
from remanence.training.checkpoints import Checkpoints, load_weights, write_weights
from remanence.training.fitting import fit_model
from remanence.training.import_run import PastTraining, import_run
from remanence.training.loop import Training, train_steps
from remanence.training.objective import BatchLoss, BatchStream, Objective, Parameters, Term, mean_loss
from remanence.training.placement import placed_steps
from remanence.training.ranks import SINGLE_PROCESS, Ranks, join_process_group
from remanence.training.recorder import Recorder
from remanence.training.run_folder import Run, RunReference, open_run
from remanence.training.run_settings import RunSettings
from remanence.training.train_run import Recording, train_and_record, train_run

__all__ = [
    "RECIPES",
    "SINGLE_PROCESS",
    "BatchLoss",
    "BatchStream",
    "Checkpoints",
    "Objective",
    "Parameters",
    "PastTraining",
    "Poison",
    "Ranks",
    "Recipe",
    "Recorder",
    "Recording",
    "Run",
    "RunReference",
    "RunSettings",
    "Term",
    "Training",
    "fit_model",
    "import_run",
    "join_process_group",
    "load_weights",
    "mean_loss",
    "open_run",
    "placed_steps",
    "train_and_record",
    "train_run",
    "train_steps",
    "write_weights",
]
