"""Erase the earlier models of a run that the user names, and record it in the evidence.

A file of a run that was received from somebody else can never cause a deletion: only folders that the user names are
touched, each must prove by its seal that it is an earlier model of the run, only plain files that its seal lists (and
subfolders that Remanence makes) are erased, links are never followed, and the list is computed anew by every call.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remanence.errors import InputError, RunFolderError
from remanence.requests.evidence import FILE, PAGE, read_evidence, verify_evidence
from remanence.requests.evidence_writer import finish_document, write_evidence
from remanence.requests.remaining_artifacts import (
    RemainingArtifact,
    artifacts_of_ancestor,
    find_remaining_artifacts,
)
from remanence.requests.request_ledger import read_ledger
from remanence.requests.signing import file_sha256
from remanence.storage import SEAL, Folder, atomic, open_folder, seal_in_place
from remanence.storage.lock import exclusive
from remanence.training import Run, open_run
from remanence.training.trust import is_trusted, trust
from remanence.types import as_ids

_LOCK = ".purge.lock"
_BEFORE = ".before-purge"
_MARKS = (".lock", ".request", ".purge")
_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Purged:
    """The artifacts that were erased, those that were only listed, and the new evidence."""

    erased: tuple[RemainingArtifact, ...]
    left: tuple[RemainingArtifact, ...]
    evidence: Mapping[str, Any]


def list_remaining_artifacts(
    run: Run, look_in: Sequence[Path] = (), erase: Sequence[Path] = ()
) -> list[RemainingArtifact]:
    """The remaining artifacts of all requests on a run; those that `purge` with the same arguments erases come first.

    Args:
        run: a run made by `forget`.
        look_in: folders to search; by default the folder around the run.
        erase: earlier models of the run, to be erased.
    """
    ledger = read_ledger(run)
    if not ledger:
        raise InputError(
            f"{run.folder.path} must be made by `remanence forget` to be purged for; no request made it."
        )
    doomed = [artifact for folder in erase for artifact in _erasable(run, Path(folder), ledger)]
    ids = as_ids(sorted({example for row in ledger for example in row["ids"]}, key=str))
    models = {row["model_before"] for row in ledger}
    places = list(look_in) or [run.folder.path.resolve().parent]
    listed = find_remaining_artifacts(run, models, ids, places, skip=run.folder.path)
    known = {artifact.path for artifact in doomed} | {Path(folder) for folder in erase}
    known |= {path.resolve() for path in known}
    return [*doomed, *(artifact for artifact in listed if artifact.path not in known)]


def purge(
    path: Path,
    erase: Sequence[Path],
    look_in: Sequence[Path] = (),
    *,
    key: Ed25519PrivateKey | None = None,
) -> Purged:
    """Erase earlier models of a run, and record it in the evidence, signed with the same key.

    The evidence and the seal are verified before anything is erased. If it is interrupted, the same call continues.

    Args:
        path: folder of a run made by `forget`.
        erase: the folders of earlier models of this run; each must prove that it is one.
        look_in: folders to search for further artifacts, which are listed; by default the folder around the run.
        key: the key that signed the evidence.
    """
    with exclusive(path / _LOCK, f"Another process is purging for {path}; wait for it."):
        atomic.sweep(path)
        _undo_interrupted(path)
        document = _verified(path)
        _check_key(document, key, path)
        run = open_run(path)
        artifacts = list_remaining_artifacts(run, look_in, erase)
        erasable = tuple(artifact for artifact in artifacts if artifact.erasable)
        left = tuple(artifact for artifact in artifacts if not artifact.erasable)
        if not erasable:
            return Purged((), left, document)
        evidence = finish_document(_updated(document, erasable, left), key)  # nothing is erased if this fails
        for artifact in erasable:
            if (
                artifact.path.name != SEAL
            ):  # seals go last: they prove what a folder was, should this be interrupted
                _erase(artifact.path)
        _replace_evidence(path, evidence)
        for artifact in erasable:
            if artifact.path.name == SEAL:
                _erase(artifact.path)
                _tidy(artifact.path.parent)
    return Purged(erasable, left, evidence)


def _verified(path: Path) -> dict[str, Any]:
    """The evidence of a run; refused unless everything about it holds. Nothing else is ever signed or sealed anew."""
    failed = [check for check in verify_evidence(path / FILE) if not check.holds]
    if failed:
        raise RunFolderError(
            f"{path / FILE} is not valid. Expected that {failed[0].what}; this is not the case. Nothing was erased."
        )
    return read_evidence(path / FILE)


def _erasable(run: Run, folder: Path, ledger: Sequence[Mapping[str, Any]]) -> list[RemainingArtifact]:
    """The artifacts in a folder that the user named; refused unless its seal proves that it is an earlier model."""
    if folder.is_symlink():
        raise InputError(f"`erase` must name folders, not links; {folder} is a link. Nothing was erased.")
    ancestor = open_folder(folder, "training")
    if folder.resolve() == run.folder.path.resolve() or run.folder.path.resolve().is_relative_to(
        folder.resolve()
    ):
        raise InputError(f"`erase` must not name the run itself; got {folder}. Nothing was erased.")
    if ancestor.files().get(_WEIGHTS) not in {row["model_before"] for row in ledger}:
        raise InputError(
            f"{folder} must be an earlier model of {run.folder.path}; its weights are in no row of the ledger. "
            "Nothing was erased."
        )
    if (
        ancestor.files()[_WEIGHTS] == ledger[-1]["model_before"]
        and run.unlearning["parent"] != ancestor.digest()
    ):
        raise InputError(
            f"{folder} must be the run that {run.folder.path} was made from; its digest is another one. "
            "Nothing was erased."
        )
    _refuse_changed(ancestor)
    return artifacts_of_ancestor(ancestor)


def _refuse_changed(ancestor: Folder) -> None:
    """Every file that is still there must be a plain file, as it was sealed."""
    for name, digest in ancestor.files().items():
        file = ancestor.path / name
        inside = [
            ancestor.path.joinpath(*Path(name).parts[:depth]) for depth in range(1, len(Path(name).parts) + 1)
        ]
        if any(part.is_symlink() for part in inside):
            raise InputError(f"{file} is a link; links are never followed. Nothing was erased.")
        if file.exists() and (not file.is_file() or file_sha256(file) != digest):
            raise InputError(
                f"{file} is not as it was sealed; {ancestor.path} is damaged. Nothing was erased."
            )


def _erase(path: Path) -> None:
    """Remove one file or one folder; of a link, the link itself."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)  # removes links inside, never what they point to
    else:
        path.unlink()


def _replace_evidence(path: Path, evidence: Mapping[str, Any]) -> None:
    """Write new evidence and seal the run again; if this is interrupted, `_undo_interrupted` restores the old one."""
    before = path / _BEFORE
    for name in (FILE, PAGE):
        atomic.write_bytes(before / name, (path / name).read_bytes())
    folder = open_folder(path, "training")
    trusted = is_trusted(folder)
    write_evidence(path, evidence)
    seal_in_place(path, "training", folder.files())
    if trusted:
        trust(open_folder(path, "training"))
    shutil.rmtree(before)


def _undo_interrupted(path: Path) -> None:
    """Put back evidence that the seal still belongs to; nothing that the seal does not list is put anywhere."""
    before = path / _BEFORE
    if before.is_symlink() or not before.is_dir():
        return
    sealed = open_folder(path, "training").files()
    for name in (FILE, PAGE):
        copy = before / name
        if copy.is_file() and not copy.is_symlink() and file_sha256(copy) == sealed.get(name):
            atomic.write_bytes(path / name, copy.read_bytes())
    shutil.rmtree(before)


def _tidy(folder: Path) -> None:
    """Remove locks and marks of an erased run, and its folder if it is empty."""
    for file in folder.glob(".*"):
        if not file.is_dir() and (file.name.startswith(_MARKS) or file.suffix == ".lock"):
            file.unlink()
    atomic.sweep(folder)
    if not any(folder.iterdir()):
        folder.rmdir()


def _check_key(document: Mapping[str, Any], key: Ed25519PrivateKey | None, path: Path) -> None:
    signature = document["signature"]
    if signature is None:
        if key is not None:
            raise InputError(
                f"{path / FILE} was not signed when it was made; it cannot be signed now. Purge without `key`. "
                "Nothing was erased."
            )
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
    recorded = {row["path"] for row in document["erased"]}
    new = [
        {"path": str(artifact.path), "description": artifact.description, "when": now}
        for artifact in erased
        if str(artifact.path) not in recorded
    ]
    return {
        **document,
        "erased": [*document["erased"], *new],
        "remaining_artifacts": [artifact.document() for artifact in left],
        "supersedes": document["digest"],
    }
