"""A deletion request: the examples to remove from a run, and how to do it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remanence.data.read_limits import LIBRARY_LIMITS, ReadLimits
from remanence.errors import DataError, InputError
from remanence.forgetting import examples_of_user, read_forget_set_for
from remanence.forgetting.forget_set_files import (
    is_forget_set,
    like_known,
    listed_ids,
    named_list,
    refuse_repeated,
)
from remanence.requests.listed_ids import Policy, removable
from remanence.requests.model_signature import check_model_key
from remanence.requests.signing import file_sha256
from remanence.training import Run
from remanence.types import ForgetSet, Ids, positions_of


@dataclass(frozen=True, eq=False)
class Request:
    """A request to remove examples.

    Args:
        forget_set: the examples.
        file_sha256: hash of the file that lists them; empty when there is no file.
        skipped: number of ids of the file that were left out, by reason.
        person: the person whose examples they are, if the request is for one.
    """

    forget_set: ForgetSet
    file_sha256: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)
    person: str = field(default="", repr=False)

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
        asked_by: a case number or department, written into the evidence as it is; it should not name the person.
        model_key: file of an EC private key that also signs the model's files by OpenSSF Model Signing (`model.sig`).
        look_in: folders to search for remaining artifacts; by default those around the run and the new run.
        apart: allow a second request from a run that another request has already begun from. The two new models
            then differ, and each still contains the examples that were removed from the other.
        seed: random seed of the unlearning and of the relearning test.
        relearning: fine-tune copies of the models, for the audit, to see whether the examples come back.
        method: unlearn as the calibration does, or train a new model without the examples.
        resume: also go on with a request that was not forgotten, for as many steps again unless `budget` is given.
        keep_calibration: keep the outputs of the reference models, which were trained on the examples; without them,
            the new run is not calibrated.
    """

    key: Ed25519PrivateKey | None = None
    oracle: bool = False
    budget: int | None = None
    plain_ids: bool = False
    asked_by: str = ""
    model_key: Path | None = None
    look_in: tuple[Path, ...] = ()
    apart: bool = False
    seed: int = 0
    relearning: bool = True
    method: Literal["unlearn", "retrain"] = "unlearn"
    resume: bool = False
    keep_calibration: bool = True

    def __post_init__(self) -> None:
        if self.model_key is not None:
            check_model_key(self.model_key)
        if self.budget is not None and self.budget < 1:
            raise InputError(f"`budget` must be at least 1 step; got {self.budget}.")
        if self.budget is not None and self.method == "retrain":
            raise InputError("`budget` cannot be given with `method` retrain, which trains to the end.")


def read_request(
    path: Path,
    run: Run,
    *,
    column: str = "id",
    unknown: Policy = "refuse",
    already_removed: Policy = "refuse",
    limits: ReadLimits = LIBRARY_LIMITS,
) -> Request:
    """Read a request from a file. Every id must belong to an example that the run was trained on and still holds.

    Args:
        path: a table with the ids in `column` (.csv, .parquet), a JSON list, a forget set made by `remanence select`,
            or text with one id per line.
        run: the run to remove them from.
        column: name of the column with the ids.
        unknown: refuse the list if it has ids that the run was never trained on, or skip these ids.
        already_removed: refuse the list if it has ids that were removed before, or skip these ids.
        limits: a larger file or table is refused.
    """
    if is_forget_set(path):
        forget_set = read_forget_set_for(path, run, limits=limits)
        entries = [(str(path), str(example)) for example in forget_set.ids.tolist()]
    else:
        entries = listed_ids(path, column=column, limits=limits)
        forget_set = None
    refuse_repeated(entries)
    kept, skipped = removable(entries, run, str(path), unknown=unknown, already_removed=already_removed)
    ids = like_known(kept, run.clean[0].ids)
    chosen = named_list(path, ids) if forget_set is None else replace(forget_set, ids=ids)
    return Request(chosen, file_sha256(path), skipped)


def find_request(
    run: Run,
    *,
    ids: Path | None = None,
    user: str | None = None,
    column: str = "id",
    unknown: Policy = "refuse",
    already_removed: Policy = "refuse",
) -> Request:
    """The request for the examples that a file lists, or for all examples of one person.

    Args:
        run: the run to remove them from.
        ids: the file, as `read_request` reads it.
        user: the person, by the column of persons in the table that the run was trained on.
        column: name of the column with the ids in the file.
        unknown: as in `read_request`.
        already_removed: as in `read_request`.
    """
    if ids is not None and user is None:
        return read_request(ids, run, column=column, unknown=unknown, already_removed=already_removed)
    if user is not None and ids is None:
        request = make_request(ForgetSet("one person", examples_of_user(run, user).ids), run)
        return replace(request, person=user)
    raise InputError(f"A request must have `ids` or `user`; got {'neither' if ids is None else 'both'}.")


def make_request(forget_set: ForgetSet, run: Run) -> Request:
    """A request from ids in memory; each must belong to an example that the run was trained on and still holds."""
    positions_of(forget_set.ids, run.clean[0].ids, what=str(run.folder.path))
    _refuse_removed(forget_set, run, "The request")
    return Request(forget_set)


def together(requests: Sequence[Request]) -> Request:
    """One request for the examples of several; an example may be in more than one of them.

    Args:
        requests: at least one request.
    """
    if not requests:
        raise InputError("There must be at least one request; got none.")
    if len(requests) == 1:
        return requests[0]
    ids = np.concatenate([request.ids for request in requests])
    _, first = np.unique(ids, return_index=True)
    text = " ".join(request.file_sha256 for request in requests)
    name = f"{len(requests)} requests together"
    return Request(ForgetSet(name, ids[np.sort(first)]), hashlib.sha256(text.encode()).hexdigest())


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
