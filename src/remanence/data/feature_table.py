"""A table of features with one row per example."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from remanence.data.columns import Columns, read_columns
from remanence.data.examples import Examples, as_labels
from remanence.data.preprocessing import hashed_test_mask, train_test_split
from remanence.errors import DataError


def read_feature_table(
    path: Path, *, label: str = "label", id_: str = "id", split: str = "split", user: str = "user"
) -> tuple[Examples, Examples]:
    """Read training and test examples from a CSV or Parquet table. All other columns are features.

    Args:
        path: the file.
        label: column of the class, as words or whole numbers. If there is a split column, the classes are those
            of the training rows.
        id_: column of the ids; if it is missing, an id is the number of the row, counted from 0.
        split: column that says `train` or `test`; if it is missing, about a fifth of the rows are test examples,
            chosen by a hash of the id.
        user: column of the person, which is not a feature.
    """
    table = read_columns(path)
    ids = table.ids(id_) if id_ in table.values else np.arange(len(table))
    features = [name for name in table.values if name not in (label, id_, split, user)]
    if not features:
        raise DataError(f"{path} must have feature columns beside {', '.join(table.values)}.")
    has_split = split in table.values
    is_test = _split_column(table, split) if has_split else hashed_test_mask(ids)
    class_names, labels = _classes(table, label, ~is_test if has_split else np.ones_like(is_test))
    inputs = np.stack([table.numbers(name) for name in features], axis=1).astype(np.float32)
    examples = Examples(ids, torch.from_numpy(inputs), as_labels(labels), class_names)
    return train_test_split(examples, is_test, what=str(path))


def _split_column(table: Columns, split: str) -> NDArray[np.bool_]:
    words = [word.lower() for word in table.names(split)]
    for row, word in enumerate(words):
        if word not in ("train", "test"):
            raise DataError(f"{table.at(row)}: {split!r} must be train or test; got {word!r}.")
    return np.array([word == "test" for word in words], dtype=np.bool_)


def _classes(
    table: Columns, label: str, in_training: NDArray[np.bool_]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names of the classes of the training rows, and the class number of every row."""
    words = table.names(label)
    known = {word for word, is_training in zip(words, in_training, strict=True) if is_training}
    whole = all(word.lstrip("-").isdecimal() for word in known)
    number = {name: i for i, name in enumerate(sorted(known, key=int if whole else None))}
    for row, word in enumerate(words):
        if word not in number:
            raise DataError(f"{table.at(row)}: the class {word!r} does not occur in the training rows.")
    return tuple(number), np.array([number[word] for word in words], dtype=np.int64)
