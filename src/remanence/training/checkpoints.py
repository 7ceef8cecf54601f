"""Checkpoints of a run, from which it can be resumed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from remanence.errors import DataError, RunFolderError
from remanence.storage import Draft, Folder, atomic, create, open_folder
from remanence.training.loop import Training
from remanence.types import Measurement

_KEPT = 2


@dataclass(frozen=True)
class _State:
    """What state.json holds."""

    step: int
    data: str
    scaler: Mapping[str, Any]


def write_weights(draft: Draft, model: nn.Module) -> None:
    """Write the state dict of a model into a folder."""
    draft.tensors(
        "weights", {name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()}
    )


def load_weights(folder: Folder, model: nn.Module) -> None:
    """Load the weights of a folder into a model of the same architecture."""
    load_state_dict(model, read_weights(folder), str(folder.path))


def read_weights(folder: Folder) -> dict[str, Tensor]:
    """The state dict that `write_weights` wrote into a folder."""
    return {name: torch.from_numpy(array) for name, array in folder.tensors("weights").items()}


def load_state_dict(model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Load a state dict into a model of the same architecture; anything else is refused.

    Args:
        model: the model.
        weights: its state dict.
        name: what to call the weights in an error.
    """
    expected = model.state_dict()
    for key in sorted(weights.keys() ^ expected.keys()):
        owner = "only they have" if key in weights else "they lack"
        raise RunFolderError(f"{name} holds another model's weights: {owner} {key!r}.")
    for key, tensor in weights.items():
        if tensor.shape != expected[key].shape:
            raise RunFolderError(
                f"{name} holds another model's weights: expected {key!r} of shape {tuple(expected[key].shape)}; got "
                f"{tuple(tensor.shape)}."
            )
    model.load_state_dict(dict(weights))


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: folder of the checkpoints.
        keep_all: keep all of them; otherwise only the newest two.
    """

    def __init__(self, folder: Path, *, keep_all: bool = False) -> None:
        self._folder, self._keep_all = folder, keep_all

    def save(self, training: Training, rows: Sequence[Measurement]) -> None:
        """Save weights, the optimizer's state, step, and the measurements so far."""
        path = self._folder / f"step-{training.step:09d}"
        if path.exists():
            return
        optimizer = {
            f"{key}/{name}": torch.as_tensor(value).cpu().numpy()
            for name, parameter in training.parameters.items()
            for key, value in training.optimizer.state[parameter].items()
            if value is not None
        }
        with create(path, "checkpoint") as draft:
            write_weights(draft, training.model)
            draft.tensors("optimizer", optimizer)
            draft.document(
                "state",
                {"step": training.step, "scaler": training.scaler.state_dict(), "data": training.data_digest},
            )
            draft.rows("measurements", map(asdict, rows))
        for old in [] if self._keep_all else self._paths()[:-_KEPT]:
            shutil.rmtree(old)

    def restore(self, training: Training) -> list[Measurement]:
        """Load the newest intact checkpoint, if there is one; return the measurements until then."""
        atomic.sweep(self._folder)
        for path in reversed(self._paths()):
            try:
                folder = open_folder(path, "checkpoint")
                folder.verify()
            except RunFolderError:
                shutil.rmtree(path)
                continue
            return self._load(folder, training)
        return []

    def _load(self, folder: Folder, training: Training) -> list[Measurement]:
        load_weights(folder, training.model)
        state = folder.record("state", _State)
        if state.data != training.data_digest:
            raise DataError(
                f"The data must be those that the run was begun with; {folder.path} was trained on other data."
            )
        training.step = state.step
        if state.scaler:
            training.scaler.load_state_dict(dict(state.scaler))
        for entry, array in folder.tensors("optimizer").items():
            key, _, name = entry.partition("/")
            parameter = training.parameters.get(name)
            if parameter is None or array.shape not in ((), tuple(parameter.shape)):
                raise RunFolderError(
                    f"{folder.path} holds another model's optimizer state: {entry!r} does not fit."
                )
            # Adam keeps its number of steps on the CPU unless it is fused or capturable
            fused = training.optimizer.param_groups[0].get("fused")
            device = parameter.device if array.shape or fused else torch.device("cpu")
            training.optimizer.state[parameter][key] = torch.from_numpy(array).to(device)
        return folder.records("measurements", Measurement)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"))
