"""The state of a run on disk, so that a kill costs no more than the steps since the last checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from remanence.errors import DataError, RunFolderError
from remanence.storage import Draft, Folder, atomic, create, open_folder
from remanence.training.loop import Training
from remanence.types import Measurement

_KEPT = 2


def write_weights(draft: Draft, model: nn.Module) -> None:
    """Put a model's state dict into a folder."""
    draft.tensors(
        "weights", {name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()}
    )


def load_weights(folder: Folder, model: nn.Module) -> None:
    """Give a model the weights of a folder; a model of another shape is refused with the first difference."""
    found = {name: torch.from_numpy(array) for name, array in folder.tensors("weights").items()}
    wanted = model.state_dict()
    for name in sorted(found.keys() ^ wanted.keys()):
        where = folder.path if name in found else "this model"
        raise RunFolderError(f"{folder.path} holds another model's weights: only {where} has {name!r}.")
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape:
            raise RunFolderError(
                f"{folder.path} holds another model's weights: {name!r} is {tuple(tensor.shape)} there "
                f"and {tuple(wanted[name].shape)} here."
            )
    model.load_state_dict(found)


class Checkpoints:
    """The checkpoints of one run; the newest few are kept, the others thinned out."""

    def __init__(self, folder: Path, *, keep_all: bool = False) -> None:
        self._folder, self._keep_all = folder, keep_all

    def save(self, training: Training, rows: Sequence[Measurement]) -> None:
        """Write the run's state: weights, momentum, step, and the measurements so far."""
        path = self._folder / f"step-{training.step:09d}"
        if path.exists():
            return
        momentum = {
            name: training.optimizer.state[parameter]["momentum_buffer"].cpu().numpy()
            for name, parameter in training.parameters.items()
            if training.optimizer.state[parameter].get("momentum_buffer") is not None
        }
        with create(path, "checkpoint") as draft:
            write_weights(draft, training.model)
            draft.tensors("momentum", momentum)
            draft.document(
                "state",
                {"step": training.step, "scaler": training.scaler.state_dict(), "data": training.data_digest},
            )
            draft.rows("measurements", map(asdict, rows))
        self._thin_out()

    def restore(self, training: Training) -> list[Measurement]:
        """Bring a run to its newest intact checkpoint and return the measurements until then; none saved, none done."""
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
        state = folder.document("state")
        if state["data"] != training.data_digest:
            raise DataError(
                f"The data must be those that the run was begun with; {folder.path} was trained on others."
            )
        training.step = state["step"]
        if state["scaler"]:
            training.scaler.load_state_dict(state["scaler"])
        for name, array in folder.tensors("momentum").items():
            parameter = training.parameters[name]
            training.optimizer.state[parameter]["momentum_buffer"] = torch.from_numpy(array).to(
                parameter.device
            )
        return [Measurement(**row) for row in folder.rows("measurements")]

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"))

    def _thin_out(self) -> None:
        for path in [] if self._keep_all else self._paths()[:-_KEPT]:
            shutil.rmtree(path)
