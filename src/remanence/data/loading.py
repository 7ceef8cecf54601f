"""Load a data set by its name or its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remanence.data.cifar10 import CIFAR10, cifar10
from remanence.data.digits import digits
from remanence.data.examples import Examples
from remanence.data.fashion_mnist import FASHION_MNIST, fashion_mnist
from remanence.data.feature_table import read_feature_table
from remanence.data.image_folder import read_image_folder
from remanence.data.npz import read_npz
from remanence.data.public_dataset import PublicDataset, data_folder
from remanence.data.svhn import SVHN, svhn
from remanence.data.table_settings import TableSettings
from remanence.errors import DataError, UnknownNameError

Reader = Callable[[Path], tuple[Examples, Examples]]

DATASETS: dict[str, Reader] = {
    "digits": lambda root: digits(),
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "svhn": svhn,
}
SOURCES: dict[str, PublicDataset] = {dataset.name: dataset for dataset in (FASHION_MNIST, CIFAR10, SVHN)}
"""The data sets that must be downloaded; `digits` is part of scikit-learn."""

_TABLES = (".csv", ".parquet")
_READERS: dict[str, Reader] = {".npz": read_npz, ".csv": read_feature_table, ".parquet": read_feature_table}


def load_dataset(
    source: str | Path, data_dir: str | Path | None = None, *, table: TableSettings | None = None
) -> tuple[Examples, Examples]:
    """Load training and test examples with stable ids into memory.

    Images are float32 [n, channels, height, width] in [0, 1]. The features of a table are float32 [n, features],
    standardized unless `table` says otherwise; those of an `.npz` file are not scaled (`remanence.data.standardize`).

    Args:
        source: `digits`, `fashion-mnist`, `cifar10` or `svhn`, or the path of an `.npz` file, of a folder of
            images, or of a table of features (`.csv`, `.parquet`).
        data_dir: folder of the named data sets; by default $REMANENCE_DATA, or else ~/.cache/remanence.
        table: how to read a table: its label, persons, missing values and categories.

    Raises:
        DataError: data that are missing or malformed.
        UnknownNameError: a name that is neither a data set nor a path.

    Warns:
        DataWarning: files whose checksum is not the official one. They are used nevertheless.

    Example:
        >>> train, test = load_dataset("digits")
        >>> len(train), tuple(train.inputs.shape[1:])
        (1297, (1, 8, 8))
    """
    if table is not None and not is_table(source):
        raise DataError(f"Settings of a table must belong to a .csv or .parquet file; {source} is none.")
    if str(source) in DATASETS:
        return DATASETS[str(source)](data_folder(data_dir))
    path = Path(source).expanduser()
    if path.is_dir():
        return read_image_folder(path)
    reader = _READERS.get(path.suffix.lower())
    if path.exists() and reader is None:
        raise DataError(f"{path} must be a folder of images or end in one of {', '.join(_READERS)}.")
    if not path.exists() and (reader is not None or len(path.parts) > 1):
        raise DataError(f"{path} does not exist.")
    if reader is None:
        raise UnknownNameError("data set", str(source), DATASETS)
    return read_feature_table(path, table) if is_table(path) else reader(path)


def is_table(source: str | Path) -> bool:
    """Whether this is the path of a table of features."""
    return (
        str(source) not in DATASETS and Path(source).suffix.lower() in _TABLES and not Path(source).is_dir()
    )
