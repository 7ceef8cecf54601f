"""Make a trace after training, from the state dicts that it saved."""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from remanence.data import load_dataset
from remanence.errors import RunFolderError
from remanence.models import build_model
from remanence.storage import create, open_folder, write_trace
from remanence.tasks import Recipe
from remanence.training.example_statistics import example_statistics, trace_from_rows
from remanence.training.ranks import SINGLE_PROCESS, Ranks
from remanence.training.train_run import ASSUMED_SIGMA
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


@dataclass(frozen=True)
class TraceSettings:
    """How the model of some checkpoints was trained.

    Args:
        data: name or path of a data set.
        model: name of a model, or `package.module:function`.
        model_options: keyword arguments of the model.
        data_dir: folder of the data sets.
        batch_size: batch size of the training.
        total_steps: optimizer steps of the training; by default those of the last checkpoint.
        noise: standard deviation of the noise that training added to the mini-batch gradient.
        sigma: noise to assume in the accounting if training added none.
        sampling: how training drew its batches.
    """

    data: str
    model: str
    model_options: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = None
    batch_size: int = 128
    total_steps: int | None = None
    noise: float = 0.0
    sigma: float = ASSUMED_SIGMA
    sampling: Sampling = "shuffled"


def trace_run(
    checkpoints: Path,
    settings: TraceSettings,
    out: Path,
    *,
    ranks: Ranks = SINGLE_PROCESS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Trace:
    """Make a trace from saved checkpoints and leave it in `out`, a folder that scores are computed from.

    Args:
        checkpoints: a folder of state dicts, or a run trained with `keep_checkpoints`.
        settings: how the model was trained.
        out: the folder to write.
        ranks: the processes that share the work.
        progress: called with the checkpoints done and their total number.
    """
    saved = _saved_checkpoints(checkpoints)
    train, _ = load_dataset(settings.data, settings.data_dir)
    model = build_model(settings.model, train, **settings.model_options)
    rows = []
    for done, (step, path) in enumerate(saved.items(), start=1):
        _load(model, path, step)
        rows.append(example_statistics(model, train, ranks=ranks))
        progress(done, len(saved))
    mechanism = _mechanism(settings, len(train), model, last_step=max(saved))
    trace = trace_from_rows(train.ids, list(saved), rows, mechanism, {"data": train.digest()})
    if ranks.first:
        with create(out, "training") as draft:
            write_trace(draft, trace)
            draft.config({"data": settings.data, "model": settings.model, "checkpoints": str(checkpoints)})
    return trace


def _mechanism(settings: TraceSettings, n: int, model: nn.Module, *, last_step: int) -> Mechanism:
    recipe = Recipe(
        epochs=1,
        learning_rate=1.0,
        batch_size=settings.batch_size,
        noise=settings.noise,
        sampling=settings.sampling,
    )
    mechanism = recipe.mechanism(n, assumed_sigma=settings.sigma, model=model)
    return replace(mechanism, steps=settings.total_steps or max(last_step, 1))


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


def _load(model: nn.Module, path: Path, step: int) -> None:
    try:
        model.load_state_dict(_read_weights(path))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise RunFolderError(f"The checkpoint of step {step} belongs to another model: {reason}") from error


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        if path.is_dir():
            arrays = open_folder(path, "checkpoint").tensors("weights")
            return {name: torch.from_numpy(array) for name, array in arrays.items()}
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
