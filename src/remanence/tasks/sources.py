"""Tasks described by names, paths and options, which a settings file can hold and a worker process can open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data import (
    DATASETS,
    Examples,
    TableSettings,
    data_folder,
    fit_table,
    is_table,
    load_dataset,
    read_users,
)
from remanence.errors import DataError, InputError
from remanence.models import build_model
from remanence.stages import IN_KEY_IF_GIVEN, NOT_IN_KEY
from remanence.tasks.devices import resolve_device
from remanence.tasks.importing import import_task
from remanence.tasks.recipe import Recipe
from remanence.tasks.task import Task
from remanence.types import Ids

_DRAW = 0
"""Seed of the random part of a data set: everywhere the same."""


@dataclass(frozen=True)
class DataSource:
    """A data set, or a random part of it.

    Args:
        source: name of a data set, or path of an `.npz` file, folder of images or table, also relative to the data
            folder.
        train: number of training examples to draw; 0 for all.
        test: number of test examples to draw; 0 for all.
        digest: expected digest of the examples; empty to accept any.
        table: how to read a table; None for its defaults.
        data_dir: the data folder on this machine.
    """

    source: str = "digits"
    train: int = 0
    test: int = 0
    digest: str = ""
    table: TableSettings | None = field(default=None, metadata=IN_KEY_IF_GIVEN)
    data_dir: str | None = field(default=None, metadata=NOT_IN_KEY)

    def read(self) -> tuple[Examples, Examples]:
        """Read training and test examples from disk."""
        source = self.source if self.source in DATASETS else self._path()
        train, test = load_dataset(source, self.data_dir, table=self.table)
        return _draw(train, self.train, "train"), _draw(test, self.test, "test")

    def load(self) -> tuple[Examples, Examples]:
        """Like `read`, but cached in memory; an error if the examples do not match `digest`."""
        train, test, digest = _loaded(replace(self, digest=""), self._stamp())
        if self.digest and digest != self.digest:
            raise DataError(
                f"Expected the examples that {self.source} had when the work was planned; this process reads other "
                "examples. Check the data folder (`data_dir`, REMANENCE_DATA) on all machines."
            )
        return train, test

    def digested(self) -> DataSource:
        """The same source with the digest of its current examples."""
        return replace(self, digest=_loaded(replace(self, digest=""), self._stamp())[2])

    def fitted(self) -> DataSource:
        """The same source with the features of its table fitted; itself if the data are no table.

        Features are fitted once, when a model is trained. From then on they stay, whatever happens to other rows.
        """
        path = self.table_path()
        return self if path is None else replace(self, table=fit_table(path, self.table))

    def users(self) -> tuple[Ids, list[str]]:
        """The id of each row of a table, and the person that it belongs to."""
        path = self.table_path()
        if path is None:
            raise DataError(
                "Persons must be a column of a .csv or .parquet table; the data are "
                f"{self.source or 'those of a task'}."
            )
        return read_users(path, self.table)

    def table_path(self) -> Path | None:
        """The file of a table; None if the data are no table."""
        return self._path() if is_table(self.source) else None

    def _path(self) -> Path:
        """The path itself, or below the data folder."""
        path, folder = Path(self.source).expanduser(), data_folder(self.data_dir)
        if path.exists() or (folder / path).exists():
            return path if path.exists() else folder / path
        if not path.suffix and len(path.parts) == 1:
            return path  # a misspelled name, for which `load_dataset` suggests the nearest
        raise DataError(
            f"Expected the data {self.source} at this path or in the data folder {folder}; it is in neither. Set "
            "`data_dir` or REMANENCE_DATA to the data folder."
        )

    def _stamp(self) -> tuple[str, int, int]:
        """Changes if the file changes or another data folder is used."""
        if self.source in DATASETS:
            return str(data_folder(self.data_dir)), 0, 0
        path = self._path()
        if not path.exists():
            return str(path), 0, 0
        return str(path), path.stat().st_mtime_ns, path.stat().st_size


@dataclass(frozen=True)
class ModelSource:
    """A model by name.

    Args:
        name: name of a model, or `package.module:function`.
        options: keyword arguments of the function that builds it.
    """

    name: str = "small_conv"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskSource:
    """A task by names; equal sources open equal tasks.

    Args:
        data: the data set.
        model: the model.
        recipe: how to train.
        task: import path of a task that brings its own data and model, instead of `data` and `model`.
        device: where to compute on this machine.
    """

    data: DataSource
    model: ModelSource
    recipe: Recipe
    task: str = ""
    device: str = field(default="cpu", metadata=NOT_IN_KEY)

    def open(self) -> Task:
        """Open the task, with data cached in memory. Executes `task`: check that it is trusted before."""
        if self.task:
            return replace(import_task(self.task), recipe=self.recipe, device=resolve_device(self.device))
        return self.with_data(*self.data.load())

    def with_data(self, train: Examples, test: Examples) -> Task:
        """The task of the named model on these examples."""
        return Task(
            lambda: build_model(self.model.name, train, **self.model.options),
            train,
            test,
            self.recipe,
            device=resolve_device(self.device),
        )


@lru_cache(maxsize=2)
def _loaded(source: DataSource, stamp: tuple[str, int, int]) -> tuple[Examples, Examples, str]:
    parts = source.read()
    return *parts, "-".join(examples.digest()[:16] for examples in parts)


def _draw(examples: Examples, size: int, name: str) -> Examples:
    if size == 0 or size == len(examples):
        return examples
    if not 0 < size < len(examples):
        raise InputError(
            f"`data.{name}` must be between 1 and the {len(examples)} examples of the data set, or 0 for all; "
            f"got {size}."
        )
    rng = np.random.default_rng((_DRAW, len(examples)))
    return examples.take(examples.ids[np.sort(rng.choice(len(examples), size, replace=False))])
