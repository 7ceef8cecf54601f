"""A finished run in a folder: its model, its data and its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remanence.data import Examples, Split
from remanence.errors import DataError, RunFolderError
from remanence.models import build_model
from remanence.stages import NOT_IN_KEY
from remanence.storage import Folder, open_folder, read_trace
from remanence.storage.table_reading import read_record
from remanence.tasks import Poison, Recipe, Task
from remanence.tasks.canaries import Canaries, flip_coins
from remanence.tasks.devices import AUTO, resolve_device
from remanence.tasks.poison import read_poison
from remanence.tasks.task import data_digest
from remanence.training.checkpoints import load_weights
from remanence.training.run_settings import RunSettings
from remanence.training.trust import check_trusted
from remanence.types import ForgetSet, Ids, Trace, as_ids

FORGOTTEN_IDS = "ledger-ids.json"
"""The ids that a run made by a deletion request has forgotten; readable by its owner only."""


@dataclass(frozen=True, eq=False)
class Run:
    """A trained or unlearned model with its data.

    Args:
        folder: the sealed folder.
        settings: the settings of its training.
        unlearning: the settings of its unlearning; empty for a run that was only trained.
        given_task: the task that the caller brought, instead of the names or import path in the settings.
    """

    folder: Folder
    settings: RunSettings
    unlearning: Mapping[str, Any]
    given_task: Task | None = None

    @property
    def never_seen(self) -> Ids:
        """Examples that were left out of training, such as the forget set of an oracle."""
        return as_ids(self.settings.without)

    @property
    def forgotten(self) -> Ids:
        """Examples that were trained on and unlearned since."""
        return as_ids(self.unlearning.get("forgotten", ()))

    @property
    def removed(self) -> Ids:
        """All examples that were left out of training or unlearned."""
        return as_ids(sorted({*self.settings.without, *self.unlearning.get("forgotten", ())}))

    @cached_property
    def poison(self) -> Poison | None:
        """The noise on poisoned examples; None if there are none."""
        return read_poison(self.folder, self.settings.poison, self.settings.poison_variance)

    @cached_property
    def canaries(self) -> Canaries | None:
        """The canaries that have not been forgotten since; None if there are none."""
        ids = as_ids(
            [canary for canary in self.settings.canaries if canary not in set(self.forgotten.tolist())]
        )
        if not len(ids):
            return None
        included = ~np.isin(ids, self.never_seen)
        if not np.array_equal(included, flip_coins(ids, self.settings.seed)):
            raise RunFolderError(
                f"Expected the canaries of {self.folder.path} to be left out of training by the coins of its seed; "
                "others are left out."
            )
        return Canaries(self._poisoned_data()[0].take(ids), included)

    @cached_property
    def whole_task(self) -> Task:
        """The task with all its examples. An import path in the settings is executed only if the folder is trusted."""
        self._check_task()
        if self.given_task is not None:
            task = replace(self.given_task, recipe=self.settings.recipe, device=self.device)
        else:
            self.check_trusted()
            task = self.settings.source.open()
        self._check_data(task)
        return task

    @cached_property
    def clean(self) -> tuple[Examples, Examples]:
        """All training and test examples, without poison."""
        self._check_task()
        if self.given_task is None and not self.settings.task:
            return self.settings.source.data.read()  # needs no trust: no code of the folder is executed
        return self.whole_task.train, self.whole_task.test

    @property
    def device(self) -> torch.device:
        """Where its model computes."""
        return resolve_device(self.settings.device)

    @property
    def task(self) -> Task:
        """The task of this run, without the removed examples."""
        train, test = self.data()
        if self.given_task is None and not self.settings.task:
            return Task(self._build, train, test, self.settings.recipe, device=self.device)
        return replace(self.whole_task, train=train, test=test)

    @property
    def reference(self) -> RunReference:
        """A reference to this run, for the parameters of a stage."""
        task = None if self.can_travel else self.given_task
        return RunReference(
            self.folder.digest(), str(self.folder.path.resolve()), self.settings.device, given_task=task
        )

    @property
    def can_travel(self) -> bool:
        """Whether other processes can open this run: they know its task by names or by an import path."""
        return self.given_task is None or bool(self.settings.task)

    def workers(self, wanted: int) -> int:
        """Number of processes that stages of this run can use; 0 if its task exists in this process only."""
        if not self.can_travel:
            return 0
        self.check_trusted()  # workers build its model by name
        return wanted

    def take_data_of(self, other: Run) -> None:
        """Share the loaded data of another run on the same data set."""
        vars(self)["clean"] = other.clean  # fills the cached_property

    def data(self) -> tuple[Examples, Examples]:
        """Training examples, with poison and without the removed ones, and test examples."""
        train, test = self._poisoned_data()
        removed = self.present(self.removed)
        return (train.without(removed) if len(removed) else train), test

    def split(self, forget_set: ForgetSet) -> Split:
        """The data, split by a forget set, whether this model was trained on it or not.

        Examples that were removed from this model are left out unless they are in the forget set.
        """
        train, test = self._poisoned_data()
        left_out = self.present(np.setdiff1d(self.removed, forget_set.ids))
        return Split(train.without(left_out) if len(left_out) else train, test, forget_set)

    def present(self, ids: Ids) -> Ids:
        """Those of these examples that are still in the data: what a run has forgotten may be erased from them."""
        return ids[np.isin(ids, self.clean[0].ids)]

    def was_trained_on(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these examples were used in training, including those that were unlearned later."""
        return np.isin(ids, self.clean[0].ids) & ~np.isin(ids, self.never_seen)

    def training_digest(self) -> str:
        """Digest of the training examples, to which traces and forget sets refer."""
        train, _ = self._poisoned_data()
        never_seen = self.present(self.never_seen)
        return (train.without(never_seen) if len(never_seen) else train).digest()

    def model(self) -> nn.Module:
        """A new module with the weights of this run, in evaluation mode."""
        model = self._build()
        load_weights(self.folder, model)
        return model.to(self.device).eval()

    def trace(self) -> Trace:
        """The trace that training recorded; an error if it recorded none."""
        if not self.folder.has("trace.safetensors"):
            raise RunFolderError(
                f"Expected a trace in {self.folder.path}; it has none. Train with `record` above 0 to get one."
            )
        return read_trace(self.folder)

    def check_trusted(self) -> None:
        """Refuse to execute an import path in the settings, unless the user trusts this folder."""
        check_trusted(self.folder, self.settings.code)

    def _build(self) -> nn.Module:
        if self.given_task is not None or self.settings.task:
            return self.whole_task.model()
        self.check_trusted()
        return build_model(self.settings.model, self.clean[0], **self.settings.model_options)

    def _check_task(self) -> None:
        if self.given_task is None and not (self.settings.task or self.settings.data):
            raise RunFolderError(
                f"{self.folder.path} was made from a task that is not in a module; open it with its task: "
                "`open_run(path, task=...)`."
            )

    def _check_data(self, task: Task) -> None:
        if self.settings.data_digest and data_digest(task) != self.settings.data_digest:
            raise DataError(
                f"The task must have the data that {self.folder.path} was trained on; its data have changed or are "
                "others."
            )

    def _poisoned_data(self) -> tuple[Examples, Examples]:
        train, test = self.clean
        return (train if self.poison is None else self.poison.applied(train)), test


def open_run(path: str | Path, *, task: Task | None = None, device: str | None = None) -> Run:
    """Open a finished run; a folder without weights is an error.

    Args:
        path: the folder.
        task: its task. Without it, an import path in the settings is only executed if the user trusts the folder.
        device: where to compute; by default that of `task`, or else the best of this machine.
    """
    path = Path(path)
    folder = open_folder(path, "training")
    if not (folder.has("config.toml") and folder.has("weights.safetensors")):
        raise RunFolderError(
            f"{path} holds a trace but no model; expected a run made by `remanence train`, `unlearn` or `import`. "
            "From Python, `Recorder(..., out=..., task=...)` leaves such a run."
        )
    values = folder.config()
    unlearning = values.pop("unlearning", {})
    config = path / "config.toml"
    if unlearning and folder.has(FORGOTTEN_IDS):  # a run made by a deletion request
        unlearning |= {"forgotten": list(folder.record(Path(FORGOTTEN_IDS).stem, _ForgottenIds).forgotten)}
    if unlearning:
        read_record(_Unlearning, unlearning, config)
    own = AUTO if task is None else str(task.device)
    settings = replace(read_record(RunSettings, values, config), device=device or own)
    if len({type(example) for example in (*settings.without, *unlearning.get("forgotten", ()))}) > 1:
        raise RunFolderError(
            f"{path} is damaged: expected ids that are all whole numbers or all text; got both."
        )
    return Run(folder, settings, unlearning, task)


@dataclass(frozen=True)
class _ForgottenIds:
    """The private file with the ids that config.toml of a run made by a deletion request leaves out."""

    forgotten: tuple[int | str, ...]


@dataclass(frozen=True)
class _Unlearning:
    """The table `[unlearning]` of config.toml."""

    method: str
    options: Mapping[str, Any]
    recipe: Recipe
    seed: int
    metrics: tuple[str, ...]
    parent: str
    forgotten: tuple[int | str, ...]
    steps: int
    forget: str = ""
    every: int | None = None
    at: tuple[int, ...] = ()
    sample: int | None = None
    half: int | None = None
    budget: int | None = None
    criterion: Mapping[str, Any] = field(default_factory=dict)
    file_sha256: str | None = None


@dataclass(frozen=True)
class RunReference:
    """A run as the parameter of a stage.

    Args:
        digest: digest of the run; part of the stage's key.
        path: folder of the run; not part of the key.
        device: where to compute; not part of the key.
        given_task: its task, if only this process has it; not part of the key.
    """

    digest: str
    path: str = field(metadata=NOT_IN_KEY)
    device: str = field(default=AUTO, metadata=NOT_IN_KEY)
    given_task: Task | None = field(default=None, metadata=NOT_IN_KEY)

    def open(self) -> Run:
        """Open the run, once per process; an error if its content has changed."""
        if open_folder(self.path, "training").digest() != self.digest:
            raise RunFolderError(f"Expected {self.path} as it was when the work was planned; it has changed.")
        return _open_cached(self)


@lru_cache(maxsize=1)
def _open_cached(reference: RunReference) -> Run:
    return open_run(reference.path, task=reference.given_task, device=reference.device)
