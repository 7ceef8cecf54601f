"""Make a run of a model that was trained before, from the state dicts that its training saved."""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from remanence.errors import InputError, RunFolderError
from remanence.storage import UNFINISHED, claim, open_folder
from remanence.tasks import ASSUMED_SIGMA, Task
from remanence.training.checkpoints import load_state_dict, read_weights
from remanence.training.example_statistics import Row, example_statistics, trace_from_rows
from remanence.training.fitting import final_trace
from remanence.training.ranks import SINGLE_PROCESS, Ranks
from remanence.training.run_folder import Run, open_run
from remanence.training.run_settings import RunSettings, seal_run
from remanence.training.task_run import task_settings
from remanence.types import Mechanism, Sampling, Trace

_DAMAGED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    struct.error,
)
"""What torch's restricted unpickler and safetensors raise for damaged files."""
ONE_MODEL = "Only the final model was at hand: its gradient norms stand for those of the whole training."
Weights = str | Path | Mapping[str, Tensor]
"""A file, a checkpoint of a run, or a state dict."""


@dataclass(frozen=True)
class PastTraining:
    """How a model was trained, for the accounting.

    Args:
        batch_size: batch size of the training; by default that of the task's recipe.
        total_steps: optimizer steps of the training; by default those of the last checkpoint, or of the recipe.
        noise: standard deviation of the noise that training added to the mini-batch gradient.
        sigma: noise to assume in the accounting if training added none.
        sampling: how training drew its batches.
    """

    batch_size: int | None = None
    total_steps: int | None = None
    noise: float = 0.0
    sigma: float = ASSUMED_SIGMA
    sampling: Sampling = "shuffled"

    def mechanism(self, task: Task, model: nn.Module, last_step: int | None) -> Mechanism:
        """The mechanism of that training on the data of a task."""
        n = len(task.train)
        recipe = replace(
            task.recipe,
            batch_size=self.batch_size or task.recipe.batch_size,
            noise=self.noise,
            langevin=False,
            sampling=self.sampling,
        )
        steps = self.total_steps or last_step or recipe.total_steps(n)
        return replace(recipe.mechanism(n, assumed_sigma=self.sigma, model=model), steps=max(1, steps))


def import_run(
    task: Task,
    weights: Weights | None = None,
    *,
    out: str | Path,
    checkpoints: str | Path | None = None,
    trace: Trace | None = None,
    past: PastTraining | None = None,
    seed: int = 0,
    settings: RunSettings | None = None,
    ranks: Ranks = SINGLE_PROCESS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Run:
    """Make a run of a model that was trained before; everything then works as with runs trained here.

    With several saved checkpoints the trace is made from them. With the final weights alone it has one checkpoint, and
    the status of every score says so.

    Args:
        task: model, data, loss and training of the model.
        weights: its state dict, or a file of it (`.safetensors`, `.pt`, `.pth`); by default the last checkpoint.
        out: folder of the new run.
        checkpoints: a folder of state dicts whose names end in their step, or a run trained with `keep_checkpoints`.
        trace: the trace that a `Recorder` made during the training, instead of `checkpoints`.
        past: how the model was trained.
        seed: random seed of that training.
        settings: settings of the new run, if its data and model have names instead of a task.
        ranks: the processes that share the work.
        progress: called with the checkpoints done and their total number.
    """
    if weights is None and checkpoints is None:
        raise InputError(
            "Give `weights` or `checkpoints`: the state dict of the model, or a folder of several."
        )
    saved = {} if checkpoints is None else _saved_checkpoints(Path(checkpoints))
    chosen = settings or task_settings(task, seed)
    folder = Path(out)
    model = task.new_model(seed)
    final: Weights = saved[max(saved)] if weights is None else weights
    final_weights = _read_state_dict(final)
    load_state_dict(model, final_weights, _name(final))
    task.check()
    if ranks.first:
        claim({"task": chosen.task, "data": chosen.data, "model": chosen.model}, folder, False)
    ranks.wait()
    try:
        made = trace or _trace(task, model, saved, past or PastTraining(), ranks, progress)
        load_state_dict(model, final_weights, _name(final))
    except BaseException:
        if ranks.first:
            (folder / UNFINISHED).unlink(missing_ok=True)
        raise
    if ranks.first:
        seal_run(folder, replace(chosen, record=len(made.steps)), model, trace=_checked_trace(made, task))
    ranks.wait()
    return open_run(folder, task=task if chosen.task or not chosen.data else None, device=str(task.device))


def _trace(
    task: Task,
    model: nn.Module,
    saved: Mapping[int, Path],
    past: PastTraining,
    ranks: Ranks,
    progress: Callable[[int, int], None],
) -> Trace:
    """The trace of the checkpoints, or of the model as it is."""
    mechanism = past.mechanism(task, model, max(saved, default=None))
    if len(saved) <= 1:
        mechanism = replace(mechanism, departures=(ONE_MODEL,))
    if not saved:
        return final_trace(model, task.train, mechanism, ranks=ranks)
    rows: list[Row] = []
    for done, (step, path) in enumerate(saved.items(), start=1):
        load_state_dict(model, _read_state_dict(path), f"The checkpoint of step {step}")
        rows.append(example_statistics(model, task.train, ranks=ranks))
        progress(done, len(saved))
    return trace_from_rows(task.train.ids, list(saved), rows, mechanism, {"data": task.train.digest()})


def _checked_trace(trace: Trace, task: Task) -> Trace:
    unknown = sorted(set(trace.ids.tolist()) - set(task.train.ids.tolist()))
    if unknown:
        raise InputError(
            f"`trace` must be of the training examples of the task; {len(unknown)} of its ids are not among them, the "
            f"first is {unknown[0]!r}."
        )
    return trace


def _name(weights: Weights) -> str:
    return "`weights`" if isinstance(weights, Mapping) else str(weights)


def _without_prefixes(key: str) -> str:
    while key.startswith(("module.", "_orig_mod.")):
        key = key.partition(".")[2]
    return key


def _read_state_dict(weights: Weights) -> dict[str, Tensor]:
    """A state dict, read from its file if need be, without prefixes of DistributedDataParallel and torch.compile."""
    read = weights if isinstance(weights, Mapping) else _read_weights(Path(weights))
    return {_without_prefixes(key): tensor for key, tensor in read.items()}


def _saved_checkpoints(folder: Path) -> dict[int, Path]:
    """Find the checkpoints of a run, or state dicts in any folder whose file names end in their step.

    `model-00120.pt` is the model after 120 optimizer steps. Reads `.safetensors`, `.pt` and `.pth` files; of the latter
    two, only tensors are unpickled.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder} must be a folder of checkpoints; it does not exist.")
    inside = folder / "checkpoints" if (folder / "checkpoints").is_dir() else folder
    saved: dict[int, Path] = {}
    for path in sorted(inside.iterdir()):
        if path.is_dir() or path.suffix in (".safetensors", ".pt", ".pth"):
            numbers = re.findall(r"\d+", path.stem)
            if numbers and not path.name.startswith("."):
                saved[int(numbers[-1])] = path
    if not saved:
        raise RunFolderError(
            f"{folder} holds no checkpoints: files *.safetensors or *.pt whose names end in their step. "
            "A run keeps its own if it is trained with `keep_checkpoints`."
        )
    return dict(sorted(saved.items()))


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        raise RunFolderError(f"{path} must be a file of weights; it does not exist.")
    try:
        if path.is_dir():
            return read_weights(open_folder(path, "checkpoint"))
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGED as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RunFolderError(f"{path} cannot be read as a state dict: {reason}") from None
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise RunFolderError(f"{path} must hold a state dict that maps names to tensors; it does not.")
    return loaded
