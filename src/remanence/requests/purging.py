"""Erase the remaining artifacts of earlier models, and record it in the evidence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remanence.errors import InputError, RunFolderError
from remanence.requests.evidence import FILE, read_evidence
from remanence.requests.evidence_writer import write_evidence
from remanence.requests.remaining_artifacts import RemainingArtifact, find_remaining_artifacts
from remanence.requests.request_ledger import read_ledger
from remanence.requests.signing import sign
from remanence.storage import SEAL, atomic, seal_in_place
from remanence.storage.lock import exclusive
from remanence.training import Run, open_run
from remanence.types import as_ids

_INTENT = ".purging.json"
_LOCK = ".purge.lock"
_MARKS = (".lock", ".request", ".purge")


@dataclass(frozen=True)
class Purged:
    """The artifacts that were erased, those that were only listed, and the new evidence."""

    erased: tuple[RemainingArtifact, ...]
    left: tuple[RemainingArtifact, ...]
    evidence: Mapping[str, Any]


def list_remaining_artifacts(run: Run, look_in: Sequence[Path] = ()) -> list[RemainingArtifact]:
    """The remaining artifacts of all requests on a run; searched for as `purge` does."""
    ledger = read_ledger(run)
    if not ledger:
        raise InputError(
            f"{run.folder.path} must be made by `remanence forget` to be purged for; no request made it."
        )
    folder = run.folder.path
    places = list(look_in) or [folder.resolve().parent, *_around_ancestors(run)]
    ids = as_ids(sorted({example for row in ledger for example in row["ids"]}))
    models = {row["model_before"] for row in ledger}
    return find_remaining_artifacts(run, models, ids, places, skip=folder)


def purge(path: Path, look_in: Sequence[Path] = (), *, key: Ed25519PrivateKey | None = None) -> Purged:
    """Erase the earlier models of a run, and record it in the evidence, signed with the same key.

    The work is noted in a file first, so that an interrupted purge is completed by the next one.

    Args:
        path: folder of a run made by `forget`.
        look_in: folders to search; by default those around the run and around the earlier models.
        key: the key that signed the evidence.
    """
    _complete(path)
    run = open_run(path)
    with exclusive(path / _LOCK, f"Another process is purging for {path}; wait for it."):
        artifacts = list_remaining_artifacts(run, look_in)
        document = read_evidence(path / FILE)
        _check_key(document, key, path)
        erasable = tuple(artifact for artifact in artifacts if artifact.erasable)
        left = tuple(artifact for artifact in artifacts if not artifact.erasable)
        if not erasable:
            return Purged((), left, document)
        evidence = sign(_updated(document, erasable, left), key)
        intent = {"erase": [str(artifact.path.resolve()) for artifact in erasable], "evidence": evidence}
        atomic.write_text(path / _INTENT, json.dumps(intent) + "\n")
        _complete(path)
    return Purged(erasable, left, evidence)


def _around_ancestors(run: Run) -> list[Path]:
    """The parent folders of earlier models, from the evidence: they need not be beside the run."""
    rows = read_evidence(run.folder.path / FILE)["remaining_artifacts"]
    paths = (Path(row["path"]) for row in rows if row["purge_erases"])
    return sorted({path.parent.parent for path in paths if path.name == SEAL})


def _complete(path: Path) -> None:
    """Do what was noted, if anything: erase, write the evidence, seal. Every step can be repeated."""
    note = path / _INTENT
    if not note.exists():
        return
    intent = json.loads(note.read_text())
    targets = [Path(target) for target in intent["erase"]]
    for target in targets:
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    for folder in {target.parent for target in targets}:
        _tidy(folder)
    write_evidence(path, intent["evidence"])
    files = json.loads((path / SEAL).read_text())["files"]
    seal_in_place(path, "training", files)
    note.unlink()


def _tidy(folder: Path) -> None:
    """Remove locks and marks of an erased run, and its folder if it is empty."""
    if not folder.is_dir():
        return
    for file in folder.glob(".*"):
        if file.is_file() and (file.name.startswith(_MARKS) or file.suffix == ".lock"):
            file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _check_key(document: Mapping[str, Any], key: Ed25519PrivateKey | None, path: Path) -> None:
    signature = document["signature"]
    if signature is None:
        return
    if key is None:
        raise InputError(
            f"{path / FILE} is signed; give the `key` that signed it, to sign the new version. Nothing was erased."
        )
    if key.public_key().public_bytes_raw().hex() != signature["public_key"]:
        raise RunFolderError(
            f"{path / FILE} was signed with another key than the one given. Nothing was erased."
        )


def _updated(
    document: Mapping[str, Any], erased: Sequence[RemainingArtifact], left: Sequence[RemainingArtifact]
) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    new = [
        {"path": str(artifact.path), "description": artifact.description, "when": now} for artifact in erased
    ]
    return {
        **document,
        "erased": [*document["erased"], *new],
        "remaining_artifacts": [artifact.document() for artifact in left],
        "supersedes": document["digest"],
    }
