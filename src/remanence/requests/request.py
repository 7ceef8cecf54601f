"""A deletion request: the examples to remove from a run, and how to do it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remanence.data.columns import read_json
from remanence.data.read_limits import LIBRARY_LIMITS, ReadLimits
from remanence.errors import DataError, InputError
from remanence.forgetting import ids_from_file, read_forget_set_for
from remanence.requests.signing import file_sha256
from remanence.training import Run
from remanence.types import ForgetSet, Ids, positions_of


@dataclass(frozen=True, eq=False)
class Request:
    """A request to remove examples.

    Args:
        forget_set: the examples.
        file_sha256: hash of the file that lists them; empty when there is no file.
    """

    forget_set: ForgetSet
    file_sha256: str = ""

    @property
    def ids(self) -> Ids:
        return self.forget_set.ids


@dataclass(frozen=True)
class ForgetOptions:
    """How `forget` carries out a request.

    Args:
        key: private key that signs the evidence.
        oracle: also retrain a model without the examples, for the audit.
        budget: maximum number of unlearning steps; the calibration's by default.
        plain_ids: write the ids into the evidence, instead of their keyed hashes.
        asked_by: the person or department behind the request; written into the evidence.
        look_in: folders to search for remaining artifacts; by default those around the run and the new run.
        apart: allow a second request from a run that another request has already begun from. The two new models
            then differ, and each still contains the examples that were removed from the other.
        seed: random seed of the unlearning.
    """

    key: Ed25519PrivateKey | None = None
    oracle: bool = False
    budget: int | None = None
    plain_ids: bool = False
    asked_by: str = ""
    look_in: tuple[Path, ...] = ()
    apart: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < 1:
            raise InputError(f"`budget` must be at least 1 step; got {self.budget}.")


def read_request(path: Path, run: Run, *, column: str = "id", limits: ReadLimits = LIBRARY_LIMITS) -> Request:
    """Read a request from a file. Every id must belong to an example that the run was trained on and still holds.

    Args:
        path: a table with the ids in `column` (.csv, .parquet), a JSON list, a forget set made by `remanence select`,
            or text with one id per line.
        run: the run to remove them from.
        column: name of the column with the ids.
        limits: a larger file or table is refused.
    """
    if _is_forget_set(path):
        forget_set = read_forget_set_for(path, run, limits=limits)
    else:
        forget_set = ids_from_file(path, run.clean[0].ids, column=column, limits=limits)
    _refuse_removed(forget_set, run, str(path))
    return Request(forget_set, file_sha256(path))


def make_request(forget_set: ForgetSet, run: Run) -> Request:
    """A request from ids in memory; each must belong to an example that the run was trained on and still holds."""
    positions_of(forget_set.ids, run.clean[0].ids, what=str(run.folder.path))
    _refuse_removed(forget_set, run, "The request")
    return Request(forget_set)


def model_hash(run: Run) -> str:
    """The SHA-256 of a run's weights, which identifies the model in every document."""
    return run.folder.files()["weights.safetensors"]


def _refuse_removed(forget_set: ForgetSet, run: Run, source: str) -> None:
    for removed, reason in (
        (run.forgotten, "have been forgotten already"),
        (run.never_seen, "were never trained on"),
    ):
        overlap = forget_set.ids[np.isin(forget_set.ids, removed)]
        if len(overlap):
            raise DataError(
                f"{source} must name examples that {run.folder.path} still holds; {len(overlap)} of its "
                f"{len(forget_set.ids)} {reason}, the first is {overlap[0]}. Nothing was changed."
            )


def _is_forget_set(path: Path) -> bool:
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        document = read_json(path)
    except DataError:
        return False  # `ids_from_file` reports the place of the error
    return isinstance(document, dict) and document.get("remanence") == "forget set"
