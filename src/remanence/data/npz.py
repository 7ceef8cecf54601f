"""A `.npz` file of x_train, y_train, x_test, y_test, and optionally idx_train, idx_test and class_names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remanence.data.examples import Examples, as_labels
from remanence.data.pixels import Pixels
from remanence.data.read_limits import LIBRARY_LIMITS
from remanence.errors import DataError
from remanence.storage.parsing import read_arrays

_NEEDED = ("x_train", "y_train", "x_test", "y_test")


def read_npz(path: Path) -> tuple[Examples, Examples]:
    """Read training and test examples; ids are the idx_* arrays, or positions if it has none.

    Bytes are pixels [n, height, width(, channels)] and are scaled to [0, 1]. Other numbers are not scaled; they
    are features [n, features] or images [n, height, width, channels].
    """
    arrays = read_arrays(path, largest=LIBRARY_LIMITS.decoded_bytes)
    if missing := [name for name in _NEEDED if name not in arrays]:
        raise DataError(f"{path} must hold the arrays {', '.join(_NEEDED)}; it lacks {', '.join(missing)}.")
    names = _class_names(arrays, path)
    train, test = (_part(arrays, part, names, path) for part in ("train", "test"))
    return train, test


def _part(arrays: Mapping[str, NDArray[Any]], part: str, names: tuple[str, ...], path: Path) -> Examples:
    inputs, labels = _inputs(arrays[f"x_{part}"], f"x_{part} of {path}"), arrays[f"y_{part}"]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"y_{part} of {path} must be a one-dimensional array of whole numbers; got {labels.dtype} {labels.shape}."
        )
    ids = arrays.get(f"idx_{part}", np.arange(len(labels)))
    return Examples(ids, inputs, as_labels(labels), names)


def _inputs(values: NDArray[Any], what: str) -> Tensor | Pixels:
    if values.dtype == np.uint8 and values.ndim in (3, 4):
        return Pixels(values if values.ndim == 4 else values[..., None])
    if values.dtype.kind not in "fiu" or values.ndim not in (2, 4):
        raise DataError(
            f"{what} must be pixels [n, height, width, channels] or numbers [n, features]; "
            f"got {values.dtype} {values.shape}."
        )
    if not np.isfinite(values).all():
        raise DataError(f"{what} must be finite; row {np.argwhere(~np.isfinite(values))[0][0]} is not.")
    ordered = values if values.ndim == 2 else values.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.array(ordered, dtype=np.float32, order="C"))


def _class_names(arrays: Mapping[str, NDArray[Any]], path: Path) -> tuple[str, ...]:
    if "class_names" in arrays:
        return tuple(str(name) for name in arrays["class_names"].ravel())
    labels = arrays["y_train"]
    if labels.size == 0 or labels.dtype.kind not in "iu":
        raise DataError(f"y_train of {path} must hold whole numbers; got {labels.dtype} {labels.shape}.")
    return tuple(str(number) for number in range(int(labels.max()) + 1))
