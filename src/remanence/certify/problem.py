"""The certified problem: L2-regularized logistic regression on a feature matrix, one output per class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.errors import DataError
from remanence.storage.parsing import read_arrays
from remanence.types import Ids, as_ids

Floats = NDArray[np.float64]
_FEATURES, _LABELS = ("X", "x", "features"), ("y", "labels", "label", "target")


@dataclass(frozen=True, eq=False)
class Problem:
    """Features with rows of norm at most 1, and a column of ±1 for each output.

    Args:
        name: name of the data.
        ids: the n examples.
        features: [n, d]; rows longer than 1 are scaled to 1, each independently, so that no example affects another.
        signs: [n, C] labels as ±1: one column for two classes, otherwise one per class.
    """

    name: str
    ids: Ids
    features: Floats
    signs: Floats

    @classmethod
    def from_labels(cls, name: str, features: Any, labels: Any, ids: Any = None) -> Problem:
        """A problem from any finite feature matrix and labels of at least two classes."""
        x, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
        if x.ndim != 2 or y.shape != x.shape[:1] or len(x) < 3:
            raise DataError(
                f"{name}: features must be [n, d] with n of at least 3 and labels [n]; "
                f"got {x.shape} and {y.shape}."
            )
        if not np.all(np.isfinite(x)):
            row, column = np.argwhere(~np.isfinite(x))[0]
            raise DataError(
                f"{name}: features must be finite; row {row}, column {column} is {x[row, column]}."
            )
        classes = np.unique(y)
        if len(classes) < 2:
            raise DataError(f"{name}: labels must be of at least two classes; all are {classes[0]!r}.")
        chosen = classes[1:] if len(classes) == 2 else classes
        signs = np.where(y[:, None] == chosen, 1.0, -1.0)
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        return cls(
            name, as_ids(np.arange(len(x)) if ids is None else ids), x / np.maximum(lengths, 1.0), signs
        )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def outputs(self) -> int:
        """Number of columns of the weights."""
        return int(self.signs.shape[1])

    def smoothness(self) -> float:
        """A quarter of the largest eigenvalue of X′X/n: the smoothness of the mean logistic loss."""
        return float(np.linalg.eigvalsh(self.features.T @ self.features / len(self))[-1] / 4)

    def accuracy(self, weights: Floats) -> float:
        """Share of examples that the weights [d, C] classify correctly."""
        margins = self.features @ weights
        if self.outputs == 1:
            return float(np.mean(np.where(margins > 0, 1.0, -1.0) == self.signs))
        return float(np.mean(margins.argmax(axis=1) == self.signs.argmax(axis=1)))


def load_problem(data: str, *, label: str | None = None) -> Problem:
    """`digits`, `reference`, or a path to an `.npz` or `.parquet` file.

    An `.npz` holds `X` and `y`; in a Parquet table `label` names the label's column (by default `label`,
    `labels`, `y` or `target`), `id` is optional, and every other column is a feature.
    """
    if data == "digits":
        return digits_problem()
    if data == "reference":
        return reference_problem()
    path = Path(data)
    if not path.is_file():
        raise DataError(f"`data` must be digits, reference, or a file that exists; there is no {data}.")
    if path.suffix == ".npz":
        return _from_npz(path)
    if path.suffix in (".parquet", ".pq"):
        return _from_parquet(path, label)
    raise DataError(f"`data` must be an .npz or .parquet file; got {path.name}.")


def digits_problem() -> Problem:
    """All 1,797 of scikit-learn's digits, pixels as features."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return Problem.from_labels("digits", data.data / 16.0, data.target)


def reference_problem(n: int = 10_000, d: int = 50, seed: int = 0) -> Problem:
    """Two Gaussian clusters on both sides of a plane, 2 % of the labels flipped: the published comparison's problem."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    spread = 0.55 * np.linspace(1.4, 0.5, d) / np.sqrt(d)
    features = 0.6 * signs[:, None] * direction + rng.normal(size=(n, d)) * spread
    flipped = np.where(rng.random(n) < 0.02, -signs, signs)
    return Problem.from_labels("reference", features, flipped)


def _from_npz(path: Path) -> Problem:
    arrays = read_arrays(path)
    features, labels = (_one_of(path, list(arrays), names) for names in (_FEATURES, _LABELS))
    return Problem.from_labels(path.name, arrays[features], arrays[labels], arrays.get("ids"))


def _from_parquet(path: Path, label: str | None) -> Problem:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise DataError("Parquet files need pyarrow; install remanence[parquet].") from error
    try:
        table = parquet.read_table(path)
    except ArrowInvalid as error:
        raise DataError(f"{path.name} is not a Parquet file.") from error
    names = table.column_names
    chosen = _one_of(path, names, (label,) if label else _LABELS)
    columns = [name for name in names if name not in (chosen, "id", "ids")]
    try:
        features = np.stack([table[name].to_numpy().astype(np.float64) for name in columns], axis=1)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path.name}: every column but {chosen!r} and `id` must be numbers; {error}."
        ) from error
    ids = next((np.array(table[name].to_pylist()) for name in ("id", "ids") if name in names), None)
    return Problem.from_labels(path.name, features, table[chosen].to_numpy(), ids)


def _one_of(path: Path, present: list[str], accepted: tuple[str, ...]) -> str:
    for name in accepted:
        if name in present:
            return name
    raise DataError(
        f"{path.name} must hold one of {', '.join(accepted)}; it holds {', '.join(present) or 'nothing'}."
    )
