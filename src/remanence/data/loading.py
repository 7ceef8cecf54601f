"""One way in: a name or a path becomes training and test examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remanence.data.cifar10 import CIFAR10, cifar10
from remanence.data.digits import digits
from remanence.data.examples import Examples
from remanence.data.fashion_mnist import FASHION_MNIST, fashion_mnist
from remanence.data.image_folder import image_folder
from remanence.data.pack import pack
from remanence.data.sources import Source, data_folder
from remanence.data.svhn import SVHN, svhn
from remanence.data.table import feature_table
from remanence.errors import DataError, UnknownNameError

Parts = tuple[Examples, Examples]

DATASETS: dict[str, Callable[[Path], Parts]] = {
    "digits": lambda root: digits(),
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "svhn": svhn,
}
SOURCES: dict[str, Source] = {source.name: source for source in (FASHION_MNIST, CIFAR10, SVHN)}
"""Those that must be fetched; digits come with scikit-learn."""

_FILES: dict[str, Callable[[Path], Parts]] = {
    ".npz": pack,
    ".csv": feature_table,
    ".parquet": feature_table,
}


def load_dataset(source: str | Path, data_dir: str | Path | None = None) -> tuple[Examples, Examples]:
    """Training and test examples, in memory, with stable ids.

    Images are float32 [n, channels, height, width] in [0, 1]; features are float32 [n, features] as they
    stand. Nothing is centred or rescaled further: `remanence.data.standardize` does that.

    Args:
        source: `digits`, `fashion-mnist`, `cifar10` or `svhn`, or the path of an `.npz` pack, of an image
            folder, or of a table of features (`.csv`, `.parquet`).
        data_dir: where the named data sets lie; else $REMANENCE_DATA, else ~/.cache/remanence.

    Raises:
        DataError: what is missing or malformed, in one sentence.
        UnknownNameError: a name that is neither a data set nor a path.

    Warns:
        DataWarning: files whose checksum is not the official one; they are used all the same.

    Example:
        >>> train, test = load_dataset("digits")
        >>> len(train), tuple(train.inputs.shape[1:])
        (1297, (1, 8, 8))
    """
    if str(source) in DATASETS:
        return DATASETS[str(source)](data_folder(data_dir))
    path = Path(source).expanduser()
    if path.is_dir():
        return image_folder(path)
    reader = _FILES.get(path.suffix.lower())
    if path.exists() and reader is None:
        raise DataError(f"{path} must be a folder of pictures or end in one of {', '.join(_FILES)}.")
    if not path.exists() and (reader is not None or len(path.parts) > 1):
        raise DataError(f"{path} does not exist.")
    if reader is None:
        raise UnknownNameError("data set", str(source), DATASETS)
    return reader(path)
