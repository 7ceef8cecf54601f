"""Leave a run of the user's own task: after a recording, or for a model that was trained before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from remanence.storage import Folder
from remanence.tasks import Task
from remanence.tasks.importing import find_import_path
from remanence.tasks.task import data_digest
from remanence.training.run_settings import RunSettings, seal_run
from remanence.types import Trace


def task_settings(task: Task, seed: int) -> RunSettings:
    """The settings of a run of this task."""
    return RunSettings(
        data="",
        model="",
        recipe=task.recipe,
        seed=seed,
        record=0,
        task=find_import_path(task),
        data_digest=data_digest(task),
        device=str(task.device),
    )


def write_task_run(out: Path, task: Task, model: nn.Module, trace: Trace | None, *, seed: int = 0) -> Folder:
    """Write a model of a task with its trace as a run, which everything opens.

    If the task is a variable of a module, the run remembers its import path and is trusted on this machine: commands
    and worker processes can open it. Otherwise it is opened with `open_run(path, task=task)` only.

    Args:
        out: folder of the run.
        task: model, data, loss and training.
        model: the trained model.
        trace: its trace; None if there is none.
        seed: random seed of its training.
    """
    settings = replace(task_settings(task, seed), record=0 if trace is None else len(trace.steps))
    return seal_run(out, settings, model, trace=trace)
