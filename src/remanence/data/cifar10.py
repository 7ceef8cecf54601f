"""CIFAR-10 in its official layout of pickled batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remanence.data.examples import Examples, as_labels
from remanence.data.pixels import Pixels
from remanence.data.public_dataset import PublicDataset
from remanence.data.restricted_pickle import as_text, get_array, read_pickle
from remanence.errors import DataError

CIFAR10 = PublicDataset(
    name="cifar10",
    about="CIFAR-10: 50,000 + 10,000 color photographs in ten classes, 32×32",
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    folders=("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10"),
    checksums={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    archive="cifar-10-python.tar.gz",
)
_BATCH = 10_000


def cifar10(root: Path) -> tuple[Examples, Examples]:
    """Read training and test examples; an id is the position in the official order.

    Row i of data_batch_b has the id 10,000 (b − 1) + i, also if a batch is incomplete.
    """
    contents = CIFAR10.read(root)
    meta = read_pickle(contents["batches.meta"], what="batches.meta")
    names = meta.get("label_names")
    if not isinstance(names, list) or not names:
        raise DataError("batches.meta must hold the list `label_names`; it does not.")
    class_names = tuple(as_text(name) for name in names)
    train = [_batch(contents[f"data_batch_{b}"], f"data_batch_{b}") for b in range(1, 6)]
    ids = np.concatenate([_BATCH * b + np.arange(len(labels)) for b, (_, labels) in enumerate(train)])
    pixels = np.concatenate([pixels for pixels, _ in train])
    labels = np.concatenate([labels for _, labels in train])
    test_pixels, test_labels = _batch(contents["test_batch"], "test_batch")
    return (
        Examples(ids, Pixels(pixels), as_labels(labels), class_names),
        Examples(np.arange(len(test_labels)), Pixels(test_pixels), as_labels(test_labels), class_names),
    )


def _batch(content: bytes, what: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    document = read_pickle(content, what=what)
    rows, labels = get_array(document, "data", what=what), document.get("labels")
    if rows.ndim != 2 or rows.shape[1] != 3072 or len(rows) > _BATCH:
        raise DataError(f"{what} must hold up to {_BATCH} rows of 3072 bytes; got shape {rows.shape}.")
    if not isinstance(labels, list) or len(labels) != len(rows) or not all(type(x) is int for x in labels):
        raise DataError(f"{what} must hold one whole-number label for each of its {len(rows)} images.")
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.asarray(labels, dtype=np.int64)
