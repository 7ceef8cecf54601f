"""A trace made afterwards, from the state dicts that training saved."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from remanence.data import Examples
from remanence.errors import RunFolderError
from remanence.storage import open_folder
from remanence.training.observing import COLUMNS, observe
from remanence.training.ranks import ALONE, Ranks
from remanence.types import Mechanism, NormTrace

StateDict = Mapping[str, Tensor]
Saved = dict[int, Callable[[], StateDict]]
"""Step to a function that reads the weights of that step."""


def saved_checkpoints(folder: Path) -> Saved:
    """The checkpoints in a run folder, or state dicts in any folder whose names end in their step.

    `.safetensors` and `.pt`/`.pth` files are read (the latter without unpickling anything but tensors);
    `model-00120.pt` is the model after 120 optimizer steps.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder} must be a folder of checkpoints; it is not there.")
    inside = folder / "checkpoints" if (folder / "checkpoints").is_dir() else folder
    found: Saved = {}
    for path in sorted(inside.iterdir()):
        if path.is_dir() or path.suffix in (".safetensors", ".pt", ".pth"):
            numbers = re.findall(r"\d+", path.stem)
            if numbers and not path.name.startswith("."):
                found[int(numbers[-1])] = lambda path=path: _read(path)  # type: ignore[misc]
    if not found:
        raise RunFolderError(
            f"{folder} holds no checkpoints: files *.safetensors or *.pt whose names end in their step. "
            "A run keeps its own with --keep-checkpoints."
        )
    return dict(sorted(found.items()))


def trace_checkpoints(
    model: nn.Module,
    examples: Examples,
    saved: Saved,
    *,
    mechanism: Mechanism,
    provenance: Mapping[str, str] | None = None,
    ranks: Ranks = ALONE,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> NormTrace:
    """What each example looked like at each saved moment: the trace that a Recorder would have made there."""
    rows = []
    for done, (step, read) in enumerate(saved.items(), start=1):
        try:
            model.load_state_dict(dict(read()))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise RunFolderError(
                f"The checkpoint of step {step} does not fit this model: {reason}"
            ) from error
        rows.append(observe(model, examples, ranks=ranks))
        progress(done, len(saved))
    columns: dict[str, Any] = {name: np.stack([row[name] for row in rows]) for name in COLUMNS}
    return NormTrace(
        examples.ids,
        np.array(list(saved), dtype=np.int64),
        mechanism=mechanism,
        provenance=dict(provenance or {}),
        **columns,
    )


def _read(path: Path) -> StateDict:
    try:
        if path.is_dir():
            arrays = open_folder(path, "checkpoint").tensors("weights")
            return {name: torch.from_numpy(array) for name, array in arrays.items()}
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise RunFolderError(
            f"{path} cannot be read as a state dict: {str(error).splitlines()[0]}"
        ) from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise RunFolderError(f"{path} must hold a state dict, names to tensors; it holds something else.")
    return loaded
