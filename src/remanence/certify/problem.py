"""The certified problem: L2-regularized logistic regression on a feature matrix, one output per class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.errors import DataError
from remanence.storage.parsing import read_arrays
from remanence.types import Ids, as_ids

Floats = NDArray[np.float64]
PUBLIC_SMOOTHNESS = 0.25
"""Smoothness of the mean logistic loss on any data with rows of norm at most 1: known without looking at the data."""
_FEATURES, _LABELS = ("X", "x", "features"), ("y", "labels", "label", "target")


@dataclass(frozen=True, eq=False)
class Problem:
    """Features with rows of norm at most 1, and a column of ±1 for each output.

    Args:
        name: name of the data.
        ids: the n examples.
        features: [n, d]; rows longer than 1 are scaled to 1, each independently, so that no example affects another.
        signs: [n, C] labels as ±1: one column for two classes, otherwise one per class.
        public_classes: the classes are known without the data, so that they stay the same without any example.
    """

    name: str
    ids: Ids
    features: Floats
    signs: Floats
    public_classes: bool = False

    @classmethod
    def from_labels(
        cls, name: str, features: Any, labels: Any, ids: Any = None, *, classes: Sequence[Any] | None = None
    ) -> Problem:
        """A problem from any finite feature matrix and labels of at least two classes.

        Args:
            name: name of the data.
            features: [n, d].
            labels: [n].
            ids: ids of the examples; 0..n−1 by default.
            classes: all classes that there can be, if they are public; by default those of the labels, which are not.
        """
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
        known = np.unique(y) if classes is None else _public_classes(name, classes, y)
        if len(known) < 2:
            raise DataError(f"{name}: labels must be of at least two classes; all are {known[0]!r}.")
        chosen = known[1:] if len(known) == 2 else known
        signs = np.where(y[:, None] == chosen, 1.0, -1.0)
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        names = as_ids(np.arange(len(x)) if ids is None else ids)
        return cls(name, names, x / np.maximum(lengths, 1.0), signs, classes is not None)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def outputs(self) -> int:
        """Number of columns of the weights."""
        return int(self.signs.shape[1])

    @property
    def sole_members(self) -> NDArray[np.bool_]:
        """[n] whether the class of an example vanishes with it: no other example has it, and it is not public."""
        if self.public_classes:
            return np.zeros(len(self), bool)
        belongs = np.hstack([self.signs, -self.signs] if self.outputs == 1 else [self.signs]) > 0
        return np.asarray(belongs[:, belongs.sum(axis=0) == 1].any(axis=1))

    def smoothness(self) -> float:
        """A quarter of the largest eigenvalue of X′X/n: the smoothness of the mean logistic loss."""
        return float(np.linalg.eigvalsh(self.features.T @ self.features / len(self))[-1] / 4)

    def accuracy(self, weights: Floats) -> float:
        """Share of examples that the weights [d, C] classify correctly."""
        margins = self.features @ weights
        if self.outputs == 1:
            return float(np.mean(np.where(margins > 0, 1.0, -1.0) == self.signs))
        return float(np.mean(margins.argmax(axis=1) == self.signs.argmax(axis=1)))


def load_problem(data: str, *, label: str | None = None, classes: Sequence[str] | None = None) -> Problem:
    """`digits`, `reference`, or a path to an `.npz` or `.parquet` file.

    An `.npz` holds `X` and `y`; in a Parquet table `label` names the label's column (by default `label`,
    `labels`, `y` or `target`), `id` is optional, and every other column is a feature. `classes` are the classes of a
    file if they are public; those of `digits` and `reference` are.
    """
    if data in ("digits", "reference"):
        if classes is not None:
            raise DataError(f"`classes` is for files; the classes of {data} are public and known.")
        return digits_problem() if data == "digits" else reference_problem()
    path = Path(data)
    if not path.is_file():
        raise DataError(f"`data` must be digits, reference, or a file that exists; there is no {data}.")
    if path.suffix == ".npz":
        return _from_npz(path, classes)
    if path.suffix in (".parquet", ".pq"):
        return _from_parquet(path, label, classes)
    raise DataError(f"`data` must be an .npz or .parquet file; got {path.name}.")


def digits_problem() -> Problem:
    """All 1,797 of scikit-learn's digits, pixels as features."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return Problem.from_labels("digits", data.data / 16.0, data.target, classes=range(10))


def reference_problem(n: int = 10_000, d: int = 50, seed: int = 0) -> Problem:
    """Two Gaussian clusters on both sides of a plane, 2 % of the labels flipped: the published comparison's problem."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    spread = 0.55 * np.linspace(1.4, 0.5, d) / np.sqrt(d)
    features = 0.6 * signs[:, None] * direction + rng.normal(size=(n, d)) * spread
    flipped = np.where(rng.random(n) < 0.02, -signs, signs)
    return Problem.from_labels("reference", features, flipped, classes=(-1.0, 1.0))


def _public_classes(name: str, classes: Sequence[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """The given classes in the labels' own type, each once."""
    try:
        known = np.unique(
            np.asarray(classes).astype(labels.dtype if labels.dtype.kind in "iufb" else np.str_)
        )
    except (ValueError, OverflowError):
        raise DataError(
            f"{name}: `classes` must be like the labels, which are {labels.dtype}; got {list(classes)}."
        ) from None
    unknown = np.setdiff1d(labels.astype(known.dtype), known)
    if unknown.size:
        raise DataError(f"{name}: every label must be one of `classes`; {unknown[0].item()!r} is not.")
    return known


def _from_npz(path: Path, classes: Sequence[str] | None) -> Problem:
    arrays = read_arrays(path)
    features, labels = (_one_of(path, list(arrays), names) for names in (_FEATURES, _LABELS))
    return Problem.from_labels(
        path.name, arrays[features], arrays[labels], arrays.get("ids"), classes=classes
    )


def _from_parquet(path: Path, label: str | None, classes: Sequence[str] | None) -> Problem:
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
    return Problem.from_labels(path.name, features, table[chosen].to_numpy(), ids, classes=classes)


def _one_of(path: Path, present: list[str], accepted: tuple[str, ...]) -> str:
    for name in accepted:
        if name in present:
            return name
    raise DataError(
        f"{path.name} must hold one of {', '.join(accepted)}; it holds {', '.join(present) or 'nothing'}."
    )
