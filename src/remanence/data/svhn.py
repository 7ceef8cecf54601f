"""The cropped digits of SVHN in the official MATLAB layout, where the label 10 means zero."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from remanence.data.examples import Examples, as_labels
from remanence.data.pixels import Pixels
from remanence.data.public_dataset import PublicDataset
from remanence.errors import DataError

SVHN = PublicDataset(
    name="svhn",
    about="SVHN: 73,257 + 26,032 house-number digits from street photographs, 32×32",
    home="http://ufldl.stanford.edu/housenumbers/",
    folders=("svhn", "SVHN"),
    checksums={
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
)
_NAMES = tuple(str(digit) for digit in range(10))


def svhn(root: Path) -> tuple[Examples, Examples]:
    """Read training and test examples; an id is the position in the official order."""
    contents = SVHN.read(root)
    return _part(contents, "train_32x32.mat"), _part(contents, "test_32x32.mat")


def _part(contents: dict[str, bytes], what: str) -> Examples:
    try:
        content = io.BytesIO(contents[what])
        arrays = loadmat(content, variable_names=["X", "y"])  # type: ignore[arg-type]  # the stubs lack files
    except Exception as error:  # the reader raises many kinds of errors for damaged files
        raise DataError(f"{what} is damaged or not a MATLAB file ({type(error).__name__}).") from None
    pixels, labels = np.asarray(arrays.get("X")), np.asarray(arrays.get("y")).ravel()
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != labels.size:
        raise DataError(f"{what} must hold X, height × width × 3 × n bytes, and y, n labels; it does not.")
    if labels.dtype.kind not in "iu" or labels.min(initial=1) < 1 or labels.max(initial=1) > 10:
        raise DataError(f"{what} must hold labels 1..10, where 10 means zero; it does not.")
    images = Pixels(pixels.transpose(3, 0, 1, 2))
    return Examples(np.arange(labels.size), images, as_labels(labels.astype(np.int64) % 10), _NAMES)
