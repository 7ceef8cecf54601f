"""A finished run in a folder: its model, its data and its trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from remanence.data import Examples, Split
from remanence.errors import RunFolderError
from remanence.models import build_model
from remanence.stages import NOT_IN_KEY
from remanence.storage import Folder, open_folder, read_trace
from remanence.storage.table_reading import read_record
from remanence.tasks import Poison, Recipe, Task
from remanence.tasks.poison import read_poison
from remanence.training.checkpoints import load_weights
from remanence.training.train_run import RunSettings
from remanence.training.trust import check_trusted
from remanence.types import ForgetSet, Ids, Trace, as_ids


@dataclass(frozen=True, eq=False)
class Run:
    """A trained or unlearned model with its data.

    Args:
        folder: the sealed folder.
        settings: the settings of its training.
        unlearning: the settings of its unlearning; empty for a run that was only trained.
        builder: builds its untrained model, instead of the name or import path in its settings.
    """

    folder: Folder
    settings: RunSettings
    unlearning: Mapping[str, Any]
    builder: Callable[[], nn.Module] | None = None

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
    def clean(self) -> tuple[Examples, Examples]:
        """All training and test examples, without poison."""
        return self.settings.source.data.read()

    @property
    def task(self) -> Task:
        """The task of this run, without the removed examples."""
        train, test = self.data()
        return Task(self._build, train, test, self.settings.recipe)

    @property
    def reference(self) -> RunReference:
        """A reference to this run, for the parameters of a stage."""
        return RunReference(self.folder.digest(), str(self.folder.path.resolve()))

    def take_data_of(self, other: Run) -> None:
        """Share the loaded data of another run on the same data set."""
        vars(self)["clean"] = other.clean  # fills the cached_property

    def data(self) -> tuple[Examples, Examples]:
        """Training examples, with poison and without the removed ones, and test examples."""
        train, test = self._poisoned_data()
        return (train.without(self.removed) if len(self.removed) else train), test

    def split(self, forget_set: ForgetSet) -> Split:
        """The data, split by a forget set, whether this model was trained on it or not.

        Examples that were removed from this model are left out unless they are in the forget set.
        """
        train, test = self._poisoned_data()
        left_out = np.setdiff1d(self.removed, forget_set.ids)
        return Split(train.without(left_out) if len(left_out) else train, test, forget_set)

    def was_trained_on(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these examples were used in training, including those that were unlearned later."""
        return np.isin(ids, self.clean[0].ids) & ~np.isin(ids, self.never_seen)

    def training_digest(self) -> str:
        """Digest of the training examples, to which traces and forget sets refer."""
        train, _ = self._poisoned_data()
        return (train.without(self.never_seen) if len(self.never_seen) else train).digest()

    def model(self) -> nn.Module:
        """A new module with the weights of this run, in evaluation mode."""
        model = self._build()
        load_weights(self.folder, model)
        return model.eval()

    def trace(self) -> Trace:
        """The trace that training recorded; an error if it recorded none."""
        if not self.folder.has("trace.safetensors"):
            raise RunFolderError(
                f"Expected a trace in {self.folder.path}; it has none. Train with `record` above 0 to get one."
            )
        return read_trace(self.folder)

    def check_trusted(self) -> None:
        """Refuse to execute an import path in the settings, unless the user trusts this folder."""
        check_trusted(self.folder, self.settings.model)

    def _build(self) -> nn.Module:
        if self.builder is not None:
            return self.builder()
        self.check_trusted()
        return build_model(self.settings.model, self.clean[0], **self.settings.model_options)

    def _poisoned_data(self) -> tuple[Examples, Examples]:
        train, test = self.clean
        return (train if self.poison is None else self.poison.applied(train)), test


def open_run(path: str | Path, *, builder: Callable[[], nn.Module] | None = None) -> Run:
    """Open a finished run; a folder without weights is an error.

    Args:
        path: the folder.
        builder: builds its untrained model. Without it, an import path in the settings is only executed if the user
            trusts the folder.
    """
    path = Path(path)
    folder = open_folder(path, "training")
    if not (folder.has("config.toml") and folder.has("weights.safetensors")):
        raise RunFolderError(
            f"{path} holds a trace but no model; expected a run made by `remanence train` or `unlearn`."
        )
    values = folder.config()
    unlearning = values.pop("unlearning", {})
    config = path / "config.toml"
    if unlearning:
        read_record(_Unlearning, unlearning, config)
    return Run(folder, read_record(RunSettings, values, config), unlearning, builder)


@dataclass(frozen=True)
class _Unlearning:
    """The table `[unlearning]` of config.toml."""

    method: str
    options: Mapping[str, Any]
    recipe: Recipe
    seed: int
    metrics: tuple[str, ...]
    parent: str
    forget: str
    forgotten: tuple[int | str, ...]
    steps: int
    every: int | None = None
    at: tuple[int, ...] = ()
    sample: int | None = None
    budget: int | None = None
    criterion: Mapping[str, Any] = field(default_factory=dict)
    file_sha256: str | None = None


@dataclass(frozen=True)
class RunReference:
    """A run as the parameter of a stage.

    Args:
        digest: digest of the run; part of the stage's key.
        path: folder of the run; not part of the key.
    """

    digest: str
    path: str = field(metadata=NOT_IN_KEY)

    def open(self) -> Run:
        """Open the run, once per process; an error if its content has changed."""
        if open_folder(self.path, "training").digest() != self.digest:
            raise RunFolderError(f"Expected {self.path} as it was when the work was planned; it has changed.")
        return _open_cached(self.path, self.digest)


@lru_cache(maxsize=1)
def _open_cached(path: str, digest: str) -> Run:
    return open_run(path)
