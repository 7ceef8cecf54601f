"""Where a task comes from: names, paths and options that a settings file can hold and a worker process can open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data import DATASETS, Examples, data_folder, load_dataset
from remanence.errors import DataError, InputError
from remanence.models import build_model
from remanence.stages import NOT_IN_KEY
from remanence.tasks.recipe import Recipe
from remanence.tasks.task import Task

_DRAW = 0
"""Seed of the draw when only a part of a data set is used: the same part everywhere."""


@dataclass(frozen=True)
class DataSource:
    """Which examples.

    Args:
        source: the name of a data set, or the path of a pack, folder or table, also relative to the data folder.
        train: how many training examples to draw; all when 0.
        test: how many test examples to draw; all when 0.
        digest: what the examples must hash to; empty to accept any.
        data_dir: the data folder on this machine.
    """

    source: str = "digits"
    train: int = 0
    test: int = 0
    digest: str = ""
    data_dir: str | None = field(default=None, metadata=NOT_IN_KEY)

    def read(self) -> tuple[Examples, Examples]:
        """Training and test examples, read anew."""
        place = self.source if self.source in DATASETS else str(self._place())
        train, test = load_dataset(place, self.data_dir)
        return _drawn(train, self.train, "train"), _drawn(test, self.test, "test")

    def load(self) -> tuple[Examples, Examples]:
        """As `read`, kept in memory for the next call; refused when they are not the examples of `digest`."""
        train, test, digest = _loaded(replace(self, digest=""), self._stamp())
        if self.digest and digest != self.digest:
            raise DataError(
                f"Expected the examples that {self.source} had when the work was planned; this process reads other "
                "ones. Check the data folder (`data_dir`, REMANENCE_DATA) on all machines."
            )
        return train, test

    def digested(self) -> DataSource:
        """The same source, tied to the examples it has now."""
        return replace(self, digest=_loaded(replace(self, digest=""), self._stamp())[2])

    def _place(self) -> Path:
        """A path as it is, or below the data folder."""
        path, folder = Path(self.source).expanduser(), data_folder(self.data_dir)
        if path.exists() or (folder / path).exists():
            return path if path.exists() else folder / path
        if not path.suffix and len(path.parts) == 1:
            return path  # a misspelt name, for which `load_dataset` suggests the nearest
        raise DataError(
            f"Expected the data {self.source} at this path or in the data folder {folder}; it is in neither. Say "
            "where the data folder is with `data_dir` or REMANENCE_DATA."
        )

    def _stamp(self) -> tuple[str, int, int]:
        """Changes when the file does, or when another data folder is used."""
        if self.source in DATASETS:
            return str(data_folder(self.data_dir)), 0, 0
        place = self._place()
        facts = place.stat() if place.exists() else None
        return (str(place), 0, 0) if facts is None else (str(place), facts.st_mtime_ns, facts.st_size)


@dataclass(frozen=True)
class ModelSource:
    """Which network: a name or `package.module:function`, and the options of the function that builds it."""

    name: str = "small_conv"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskSource:
    """A task by names. Two sources that are equal open equal tasks."""

    data: DataSource
    model: ModelSource
    recipe: Recipe

    def open(self) -> Task:
        """The task; data that were read before in this process are not read again."""
        return self.with_data(*self.data.load())

    def with_data(self, train: Examples, test: Examples) -> Task:
        """The task with data that are already in memory."""
        return Task(
            lambda: build_model(self.model.name, train, **self.model.options), train, test, self.recipe
        )


@lru_cache(maxsize=2)
def _loaded(source: DataSource, stamp: tuple[str, int, int]) -> tuple[Examples, Examples, str]:
    parts = source.read()
    return *parts, "-".join(examples.digest()[:16] for examples in parts)


def _drawn(examples: Examples, size: int, name: str) -> Examples:
    if size == 0 or size == len(examples):
        return examples
    if not 0 < size < len(examples):
        raise InputError(
            f"`data.{name}` must be between 1 and the {len(examples)} examples there are, or 0 for all; got {size}."
        )
    rng = np.random.default_rng((_DRAW, len(examples)))
    return examples.take(examples.ids[np.sort(rng.choice(len(examples), size, replace=False))])
