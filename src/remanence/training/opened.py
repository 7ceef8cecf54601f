"""A finished run, opened: its model, and the data as that model saw them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from remanence.data import Examples, Split, load_dataset
from remanence.errors import RunFolderError
from remanence.models import build_model
from remanence.storage import Folder, open_folder, read_trace
from remanence.training.checkpoints import load_weights
from remanence.training.poison import Poison, read_poison
from remanence.training.recipe import Recipe
from remanence.training.run import RunSettings
from remanence.types import ForgetSet, Ids, NormTrace, as_ids


@dataclass(frozen=True, eq=False)
class Run:
    """A run made by `remanence train`, or what unlearning made of one.

    Args:
        folder: where it is.
        settings: how it was trained.
        unlearning: what was done to it since; empty for a run that was only trained.
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
        """All examples that this model is to be without."""
        return as_ids(sorted({*self.settings.without, *self.unlearning.get("forgotten", ())}))

    @cached_property
    def poison(self) -> Poison | None:
        """The noise that some of its examples were trained with."""
        return read_poison(self.folder, self.settings.poison, self.settings.poison_variance)

    @cached_property
    def clean(self) -> tuple[Examples, Examples]:
        """The whole data set as it is on disk, training and test."""
        return load_dataset(self.settings.data, self.settings.data_dir)

    def take_data_of(self, other: Run) -> None:
        """Use what another run on the same data set has loaded."""
        vars(self)["clean"] = other.clean  # where cached_property keeps it

    def data(self) -> tuple[Examples, Examples]:
        """Training examples as this model saw them, without those removed; and the test examples."""
        train, test = self._seen()
        return (train.without(self.removed) if len(self.removed) else train), test

    def split(self, forget_set: ForgetSet) -> Split:
        """The data with one forget set named, whether this model has been trained on it or not.

        What else was removed from this model stays away.
        """
        train, test = self._seen()
        elsewhere = np.setdiff1d(self.removed, forget_set.ids)
        return Split(train.without(elsewhere) if len(elsewhere) else train, test, forget_set)

    def was_trained_on(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these examples the model's training used, unlearned since or not."""
        return np.isin(ids, self.clean[0].ids) & ~np.isin(ids, self.never_seen)

    def training_digest(self) -> str:
        """The digest of what training used, which a trace and the forget sets chosen from it carry."""
        train, _ = self._seen()
        return (train.without(self.never_seen) if len(self.never_seen) else train).digest()

    def model(self) -> nn.Module:
        """A new module with this run's weights, in evaluation mode."""
        model = build_model(self.settings.model, self.clean[0], **self.settings.model_options)
        load_weights(self.folder, model)
        return model.eval()

    def trace(self) -> NormTrace:
        """What training left behind of each example; a run that recorded nothing is refused."""
        if not self.folder.has("trace.safetensors"):
            raise RunFolderError(
                f"{self.folder.path} holds no trace; one is made by `remanence train` unless told `--record 0`."
            )
        return read_trace(self.folder)

    def _seen(self) -> tuple[Examples, Examples]:
        train, test = self.clean
        return (train if self.poison is None else self.poison.applied(train)), test


def open_run(path: str | Path) -> Run:
    """Open a finished run; a folder that holds no weights, or is no run, is refused."""
    path = Path(path)
    folder = open_folder(path, "training")
    if not (folder.has("config.toml") and folder.has("weights.safetensors")):
        raise RunFolderError(
            f"{path} holds a trace but no model; a run made by `remanence train` or `unlearn` is needed here."
        )
    values = folder.config()
    unlearning = values.pop("unlearning", {})
    return Run(folder, settings_from(values, path), unlearning)


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
