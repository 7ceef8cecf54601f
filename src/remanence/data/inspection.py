"""List the named data sets, and summarize the examples of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.data.examples import Examples
from remanence.data.loading import DATASETS, SOURCES, load_dataset
from remanence.data.public_dataset import data_folder


@dataclass(frozen=True)
class DatasetEntry:
    """A named data set.

    Args:
        name: name of the data set.
        about: description in one line.
        ready: whether it is on this machine.
        place: folder of its files, or the package that it is part of.
        home: official page to download it from; None if it is part of a package.
    """

    name: str
    about: str
    ready: bool
    place: str
    home: str | None


def list_datasets(data_dir: str | Path | None = None) -> list[DatasetEntry]:
    """The named data sets, and whether they are on this machine."""
    root = data_folder(data_dir)
    return [_entry(name, root) for name in DATASETS]


def describe_dataset(source: str | Path, data_dir: str | Path | None = None) -> dict[str, Any]:
    """Classes of a data set, and a summary of its training and test examples."""
    train, test = load_dataset(source, data_dir)
    return {
        "data": str(source),
        "classes": list(train.class_names),
        "train": _summary(train),
        "test": _summary(test),
    }


def _summary(examples: Examples) -> dict[str, Any]:
    counts = examples.labels.bincount(minlength=len(examples.class_names)).tolist()
    return {
        "examples": len(examples),
        "shape": list(examples.input_shape),
        "range": [float(examples.inputs.min()), float(examples.inputs.max())],
        "class_counts": dict(zip(examples.class_names, counts, strict=True)),
        "first_id": examples.ids[0].item(),
        "last_id": examples.ids[-1].item(),
        "digest": examples.digest(),
    }


def _entry(name: str, root: Path) -> DatasetEntry:
    source = SOURCES.get(name)
    if source is None:
        about = "1,297 + 500 handwritten digits, 8×8 grayscale, from scikit-learn"
        return DatasetEntry(name, about, ready=True, place="scikit-learn", home=None)
    place = str(root / source.folders[0])
    return DatasetEntry(name, source.about, source.present(root), place, source.home)
