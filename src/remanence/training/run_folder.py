"""A finished run in a folder: its model, and the data as that model saw them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from remanence.data import Examples, Split
from remanence.errors import RunFolderError
from remanence.stages import NOT_IN_KEY
from remanence.storage import Folder, open_folder, read_trace
from remanence.tasks import Poison, Recipe, Task
from remanence.tasks.poison import read_poison
from remanence.training.checkpoints import load_weights
from remanence.training.train_run import RunSettings
from remanence.types import ForgetSet, Ids, NormTrace, as_ids


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model with its data, or what unlearning made of one.

    Args:
        folder: its sealed folder.
        settings: how it was trained.
        unlearning: how it was unlearned since; empty for a run that was only trained.
    """

    folder: Folder
    settings: RunSettings
    unlearning: Mapping[str, Any]

    @property
    def never_seen(self) -> Ids:
        """Examples that were left out of training, as an oracle leaves out its forget set."""
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
        """The noise that some examples were trained with."""
        return read_poison(self.folder, self.settings.poison, self.settings.poison_variance)

    @cached_property
    def clean(self) -> tuple[Examples, Examples]:
        """The whole data set as it is on disk, training and test."""
        return self.settings.source.data.read()

    @property
    def task(self) -> Task:
        """The task as training would see it now, without the removed examples."""
        return self.settings.source.with_data(*self.data())

    @property
    def reference(self) -> RunReference:
        """This run by name, for the parameters of a stage."""
        return RunReference(self.folder.digest(), str(self.folder.path.resolve()))

    def take_data_of(self, other: Run) -> None:
        """Use the data that another run on the same data set has loaded."""
        vars(self)["clean"] = other.clean  # where cached_property keeps it

    def data(self) -> tuple[Examples, Examples]:
        """The training examples as this model saw them, without those removed, and the test examples."""
        train, test = self._seen()
        return (train.without(self.removed) if len(self.removed) else train), test

    def split(self, forget_set: ForgetSet) -> Split:
        """The data with a forget set, whether this model was trained on it or not.

        Examples that were removed from this model and are not in the forget set stay away.
        """
        train, test = self._seen()
        elsewhere = np.setdiff1d(self.removed, forget_set.ids)
        return Split(train.without(elsewhere) if len(elsewhere) else train, test, forget_set)

    def was_trained_on(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these examples were used in training, whether they were unlearned since or not."""
        return np.isin(ids, self.clean[0].ids) & ~np.isin(ids, self.never_seen)

    def training_digest(self) -> str:
        """The digest of the training examples, which the trace and its forget sets carry."""
        train, _ = self._seen()
        return (train.without(self.never_seen) if len(self.never_seen) else train).digest()

    def model(self) -> nn.Module:
        """A new module with this run's weights, in evaluation mode."""
        model = self.settings.source.with_data(*self.clean).model()
        load_weights(self.folder, model)
        return model.eval()

    def trace(self) -> NormTrace:
        """The gradient norms that training recorded; refused when nothing was recorded."""
        if not self.folder.has("trace.safetensors"):
            raise RunFolderError(
                f"Expected a trace in {self.folder.path}; it has none. Train with `record` above 0 to get one."
            )
        return read_trace(self.folder)

    def _seen(self) -> tuple[Examples, Examples]:
        train, test = self.clean
        return (train if self.poison is None else self.poison.applied(train)), test


def open_run(path: str | Path) -> Run:
    """Open a finished run. A folder without weights is refused."""
    path = Path(path)
    folder = open_folder(path, "training")
    if not (folder.has("config.toml") and folder.has("weights.safetensors")):
        raise RunFolderError(
            f"{path} holds a trace but no model; expected a run made by `remanence train` or `unlearn`."
        )
    values = folder.config()
    unlearning = values.pop("unlearning", {})
    return Run(folder, settings_from(values, path), unlearning)


@dataclass(frozen=True)
class RunReference:
    """A run as the parameter of a stage: the digest is part of the stage's key, the path is not."""

    digest: str
    path: str = field(metadata=NOT_IN_KEY)

    def open(self) -> Run:
        """The run, opened once per process; refused when its content has changed."""
        if open_folder(self.path, "training").digest() != self.digest:
            raise RunFolderError(f"Expected {self.path} as it was when the work was planned; it has changed.")
        return _opened(self.path, self.digest)


@lru_cache(maxsize=1)
def _opened(path: str, digest: str) -> Run:
    return open_run(path)


def settings_from(values: Mapping[str, Any], path: Path) -> RunSettings:
    """A run's settings from its config.toml."""
    plain = dict(values)
    try:
        recipe = Recipe(**plain.pop("recipe"))
        without, poison = (tuple(plain.pop(name, ())) for name in ("without", "poison"))
        return RunSettings(recipe=recipe, without=without, poison=poison, **plain)
    except (KeyError, TypeError) as error:
        raise RunFolderError(
            f"{path} was not made by `remanence train`: its settings lack or add {error}."
        ) from None
