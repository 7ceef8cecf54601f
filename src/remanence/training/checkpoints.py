"""Checkpoints of a run, from which it can be resumed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

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
    weights = {name: torch.from_numpy(array) for name, array in folder.tensors("weights").items()}
    expected = model.state_dict()
    for name in sorted(weights.keys() ^ expected.keys()):
        owner = folder.path if name in weights else "this model"
        raise RunFolderError(f"{folder.path} holds another model's weights: only {owner} has {name!r}.")
    for name, tensor in weights.items():
        if tensor.shape != expected[name].shape:
            raise RunFolderError(
                f"{folder.path} holds another model's weights: expected {name!r} of shape "
                f"{tuple(expected[name].shape)}; got {tuple(tensor.shape)}."
            )
    model.load_state_dict(weights)


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: folder of the checkpoints.
        keep_all: keep all of them; otherwise only the newest two.
    """

    def __init__(self, folder: Path, *, keep_all: bool = False) -> None:
        self._folder, self._keep_all = folder, keep_all

    def save(self, training: Training, rows: Sequence[Measurement]) -> None:
        """Save weights, momentum, step, and the measurements so far."""
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
        for name, array in folder.tensors("momentum").items():
            parameter = training.parameters.get(name)
            if parameter is None or parameter.shape != array.shape:
                raise RunFolderError(f"{folder.path} holds another model's momentum: {name!r} does not fit.")
            training.optimizer.state[parameter]["momentum_buffer"] = torch.from_numpy(array).to(
                parameter.device
            )
        return folder.records("measurements", Measurement)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"))
