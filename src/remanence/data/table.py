"""A table of features, one row an example."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from remanence.data.columns import Columns, read_columns
from remanence.data.examples import Examples
from remanence.data.holding_out import held_out, parted
from remanence.data.pixels import as_labels
from remanence.errors import DataError


def feature_table(
    path: Path, *, label: str = "label", id_: str = "id", split: str = "split", user: str = "user"
) -> tuple[Examples, Examples]:
    """Training and test examples of a CSV or Parquet table; every column not named here is a feature.

    Args:
        path: the table.
        label: the column with the class, words or whole numbers. Where a split is given, the classes are those
            of the training rows.
        id_: the column with the ids; where there is none, an id is the row's number from 0.
        split: the column that says `train` or `test`; where there is none, about a fifth is held out by a
            hash of the id.
        user: the column with the person, left out of the features.
    """
    table = read_columns(path)
    ids = table.ids(id_) if id_ in table.values else np.arange(len(table))
    features = [name for name in table.values if name not in (label, id_, split, user)]
    if not features:
        raise DataError(f"{path} must have feature columns beside {', '.join(table.values)}.")
    said = split in table.values
    testing = _testing(table, split) if said else held_out(ids)
    names, labels = _classes(table, label, trained=~testing if said else np.ones_like(testing))
    inputs = np.stack([table.numbers(name) for name in features], axis=1).astype(np.float32)
    both = Examples(ids, torch.from_numpy(inputs), as_labels(labels), names)
    return parted(both, testing, what=str(path))


def _testing(table: Columns, split: str) -> NDArray[np.bool_]:
    found = [word.lower() for word in table.names(split)]
    for row, word in enumerate(found):
        if word not in ("train", "test"):
            raise DataError(f"{table.at(row)}: {split!r} must be train or test; got {word!r}.")
    return np.array([word == "test" for word in found], dtype=np.bool_)


def _classes(
    table: Columns, label: str, *, trained: NDArray[np.bool_]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    words = table.names(label)
    known = {word for word, known_to_train in zip(words, trained, strict=True) if known_to_train}
    whole = all(word.lstrip("-").isdecimal() for word in known)
    number = {name: i for i, name in enumerate(sorted(known, key=int if whole else None))}
    for row, word in enumerate(words):
        if word not in number:
            raise DataError(f"{table.at(row)}: the class {word!r} is not among those of the training rows.")
    return tuple(number), np.array([number[word] for word in words], dtype=np.int64)
