"""A deletion request: which examples somebody wants gone from a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remanence.errors import DataError, RunFolderError
from remanence.forgetting import read_forget_set_for
from remanence.forgetting.files import ids_from_file
from remanence.storage import read_trace
from remanence.training import Run
from remanence.types import ForgetSet, Ids, NormTrace


@dataclass(frozen=True, eq=False)
class Request:
    """What was asked for.

    Args:
        forget_set: the examples.
        file_sha256: hash of the file that named them.
    """

    forget_set: ForgetSet
    file_sha256: str

    @property
    def ids(self) -> Ids:
        """Who is to go."""
        return self.forget_set.ids


def read_request(path: Path, run: Run, *, column: str = "id") -> Request:
    """The request in a .csv, .parquet, .json or text file; every id must be one that this run was trained on and holds.

    Args:
        path: ids in `column` of a table, a JSON list, a forget set of `remanence select`, or text with one id a line.
        run: what they are to be forgotten from.
        column: of the ids.
    """
    known = run.clean[0].ids
    found = (
        read_forget_set_for(path, run) if _is_forget_set(path) else ids_from_file(path, known, column=column)
    )
    _refuse_gone(found, run, path)
    return Request(found, hashlib.sha256(path.read_bytes()).hexdigest())


def trace_of(run: Run) -> NormTrace:
    """What training left behind; a run without it cannot tell how hard anything is to forget."""
    if not run.folder.has("trace.safetensors"):
        raise RunFolderError(
            f"{run.folder.path} must hold a trace to tell how hard examples are to forget; it has none. "
            "Train with --record above 0."
        )
    return read_trace(run.folder)


def _refuse_gone(found: ForgetSet, run: Run, path: Path) -> None:
    for gone, why in (
        (run.forgotten, "have been forgotten already"),
        (run.never_seen, "were never trained on"),
    ):
        overlap = found.ids[np.isin(found.ids, gone)]
        if len(overlap):
            raise DataError(
                f"{path} must name examples that {run.folder.path} still holds; {len(overlap)} of its "
                f"{len(found.ids)} {why}, the first is {overlap[0]}. Nothing was changed."
            )


def _is_forget_set(path: Path) -> bool:
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return False  # the other reader says what is wrong, and where
    return isinstance(document, dict) and document.get("remanence") == "forget set"
