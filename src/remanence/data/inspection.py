"""List the named data sets, and summarize the examples of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.data.examples import Examples
from remanence.data.feature_table import fit_table
from remanence.data.loading import DATASETS, SOURCES, is_table, load_dataset
from remanence.data.public_dataset import data_folder
from remanence.data.table_encoding import feature_names
from remanence.data.table_settings import TableEncoding, TableSettings


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


def describe_dataset(
    source: str | Path, data_dir: str | Path | None = None, *, table: TableSettings | None = None
) -> dict[str, Any]:
    """What a data set predicts, its classes, and a summary of its training and test examples."""
    if is_table(source):
        table = fit_table(Path(source).expanduser(), table)
    train, test = load_dataset(source, data_dir, table=table)
    encoding = None if table is None else table.encoding
    return {
        "data": str(source),
        "target": train.target,
        "classes": list(train.class_names),
        "features": [] if encoding is None else feature_names(encoding.columns),
        "train": _summary(train, encoding),
        "test": _summary(test, encoding),
    }


def _summary(examples: Examples, encoding: TableEncoding | None) -> dict[str, Any]:
    return {
        "examples": len(examples),
        "shape": list(examples.input_shape),
        "range": [float(examples.inputs.min()), float(examples.inputs.max())],
        **_label_summary(examples, encoding),
        "first_id": examples.ids[0].item(),
        "last_id": examples.ids[-1].item(),
        "digest": examples.digest(),
    }


def _label_summary(examples: Examples, encoding: TableEncoding | None) -> dict[str, Any]:
    """How often each class occurs, or the range of a number in its own unit."""
    if examples.target == "number":
        scale, mean = (1.0, 0.0) if encoding is None else (encoding.label_scale, encoding.label_mean)
        numbers = examples.labels.double() * scale + mean
        return {"label_range": [float(numbers.min()), float(numbers.max())]}
    labels = examples.labels.nonzero()[:, 1] if examples.target == "labels" else examples.labels
    counts = labels.bincount(minlength=len(examples.class_names)).tolist()
    return {"class_counts": dict(zip(examples.class_names, counts, strict=True))}


def _entry(name: str, root: Path) -> DatasetEntry:
    source = SOURCES.get(name)
    if source is None:
        about = "1,297 + 500 handwritten digits, 8×8 grayscale, from scikit-learn"
        return DatasetEntry(name, about, ready=True, place="scikit-learn", home=None)
    place = str(root / source.folders[0])
    return DatasetEntry(name, source.about, source.present(root), place, source.home)
