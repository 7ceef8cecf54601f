"""Erase the earlier models of a run that the user names, and record it in the evidence.

A file of a run that was received from somebody else can never cause a deletion: only folders that the user names are
touched, each must prove by its seal that it is an earlier model of the run, only plain files that its seal lists (and
subfolders that Remanence makes) are erased, links are never followed, and the list is computed anew by every call.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remanence.errors import InputError, RunFolderError
from remanence.requests.evidence import FILE, PAGE, read_evidence, verify_evidence
from remanence.requests.evidence_writer import finish_document, write_evidence
from remanence.requests.outcome import Outcome, open_requests
from remanence.requests.remaining_artifacts import (
    RemainingArtifact,
    artifacts_of_ancestor,
    find_remaining_artifacts,
)
from remanence.requests.request_ledger import read_ledger
from remanence.requests.signing import file_sha256, public_hex, reference_of
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
    """The artifacts that were erased, those that were only listed, the new evidence, and the bytes that each had."""

    erased: tuple[RemainingArtifact, ...]
    left: tuple[RemainingArtifact, ...]
    evidence: Mapping[str, Any]
    sizes: Mapping[Path, int]


def list_remaining_artifacts(
    run: Run, look_in: Sequence[Path] = (), erase: Sequence[Path] = (), *, copies: bool = False
) -> list[RemainingArtifact]:
    """The remaining artifacts of all requests on a run; those that `purge` with the same arguments erases come first.

    Args:
        run: a run made by `forget`.
        look_in: folders to search; by default the folder around the run.
        erase: earlier models of the run, to be erased.
        copies: also erase folders among `look_in` that are identical copies of those in `erase`.
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
    named = {Path(folder).resolve() for folder in erase}
    known = named | {path for artifact in doomed for path in (artifact.path, artifact.path.resolve())}
    others = [_marked_copy(artifact, erase) for artifact in listed if artifact.path.resolve() not in known]
    if copies:
        same = [artifact for artifact in others if artifact.copy_of is not None]
        doomed += [inside for artifact in same for inside in _erasable(run, artifact.path, ledger)]
        others = [artifact for artifact in others if artifact.copy_of is None]
    return [*doomed, *others]


def _marked_copy(artifact: RemainingArtifact, erase: Sequence[Path]) -> RemainingArtifact:
    """The artifact, marked if it is an identical copy of a folder that is to be erased: one with the same seal."""
    if not artifact.earlier_model:
        return artifact
    digest = open_folder(artifact.path).digest()
    original = next((Path(folder) for folder in erase if open_folder(folder).digest() == digest), None)
    if original is None:
        return artifact
    return replace(artifact, description=f"an identical copy of {original}", copy_of=original)


def purge(
    path: Path,
    erase: Sequence[Path],
    look_in: Sequence[Path] = (),
    *,
    key: Ed25519PrivateKey | None = None,
    copies: bool = False,
    although_not_forgotten: bool = False,
) -> Purged:
    """Erase earlier models of a run, and record it in the evidence, signed with the same key.

    The evidence and the seal are verified before anything is erased. If it is interrupted, the same call continues.

    Args:
        path: folder of a run made by `forget`.
        erase: the folders of earlier models of this run; each must prove that it is one.
        look_in: folders to search for further artifacts, which are listed; by default the folder around the run.
        key: the key that signed the evidence.
        copies: also erase folders among `look_in` that are identical copies of those in `erase`.
        although_not_forgotten: erase them even if a request of this run is neither forgotten nor retrained.
    """
    open_folder(path, "training")  # the lock needs a folder; this says what is wrong if there is none
    with exclusive(path / _LOCK, f"Another process is purging for {path}; wait for it."):
        atomic.sweep(path)
        _undo_interrupted(path)
        document = _verified(path)
        _check_key(document, key, path)
        run = open_run(path)
        if erase and not although_not_forgotten:
            _refuse_unsettled(run, document)
        artifacts = list_remaining_artifacts(run, look_in, erase, copies=copies)
        erasable = tuple(artifact for artifact in artifacts if artifact.erasable)
        left = tuple(artifact for artifact in artifacts if not artifact.erasable)
        sizes = {artifact.path: artifact.size for artifact in artifacts}
        if not erasable:
            return Purged((), left, document, sizes)
        salts = {reference_of(row["salt"]): row["salt"] for row in read_ledger(run)}
        evidence = {
            name: finish_document(
                _updated(content, erasable, left, salts[content["request"]["reference"]]), key
            )
            for name, content in _evidence_of(run).items()
        }  # nothing is erased if this fails
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
    return Purged(erasable, left, evidence[""], sizes)


def _evidence_of(run: Run) -> dict[str, dict[str, Any]]:
    """The evidence of a run by its folder: about the whole run, and about each request of a batch."""
    files = [Path(name) for name in run.folder.files() if Path(name).name == FILE]
    folders = sorted("" if file.parent == Path() else str(file.parent) for file in files)
    return {folder: read_evidence(run.folder.path / folder / FILE) for folder in folders}


def _refuse_unsettled(run: Run, document: Mapping[str, Any]) -> None:
    """The earlier models are needed to go on with a request that is neither forgotten nor retrained."""
    unsettled = [str(row["outcome"]) for row in open_requests(read_ledger(run))]
    if not Outcome(document["outcome"]).is_final:
        unsettled.append(document["outcome"])
    if unsettled:
        raise InputError(
            f"{run.folder.path} must come from requests that were forgotten or retrained; the outcome of one is: "
            f"{unsettled[-1]}. Go on with it (`remanence forget` with the same folder) or retrain, or set "
            "`although_not_forgotten`. Nothing was erased."
        )


def _verified(path: Path) -> dict[str, Any]:
    """The evidence of a run; refused unless everything about it holds. Nothing else is ever signed or sealed anew."""
    for folder in _evidence_of(open_run(path)) or ("",):
        file = path / folder / FILE
        failed = [check for check in verify_evidence(file) if not check.holds]
        if failed:
            raise RunFolderError(
                f"{file} is not valid. Expected that {failed[0].what}; this is not the case. Nothing was erased."
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


def _replace_evidence(path: Path, evidence: Mapping[str, Mapping[str, Any]]) -> None:
    """Write new evidence and seal the run again; if this is interrupted, `_undo_interrupted` restores the old one."""
    before = path / _BEFORE
    for name in _names(evidence):
        atomic.write_bytes(before / name, (path / name).read_bytes())
    folder = open_folder(path, "training")
    trusted = is_trusted(folder)
    for inside, document in evidence.items():
        write_evidence(path / inside, document)
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
    for name in (name for name in sealed if Path(name).name in (FILE, PAGE)):
        copy = before / name
        if copy.is_file() and not copy.is_symlink() and file_sha256(copy) == sealed.get(name):
            atomic.write_bytes(path / name, copy.read_bytes())
    shutil.rmtree(before)


def _names(evidence: Iterable[str]) -> list[str]:
    """The files of the evidence in these folders of a run."""
    return [(Path(folder) / name).as_posix() for folder in evidence for name in (FILE, PAGE)]


def _tidy(folder: Path) -> None:
    """Remove locks and marks of an erased run, and its folder if it is empty."""
    for file in folder.glob(".*"):
        if not file.is_dir() and (file.name.startswith(_MARKS) or file.suffix == ".lock"):
            file.unlink()
    atomic.sweep(folder)
    if not any(folder.iterdir()):
        folder.rmdir()


def _check_key(document: Mapping[str, Any], key: Ed25519PrivateKey | None, path: Path) -> None:
    signer = document["signer"]
    if signer is None:
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
    if public_hex(key) != signer["public_key"]:
        raise RunFolderError(
            f"{path / FILE} was signed with another key than the one given. Nothing was erased."
        )


def _updated(
    document: Mapping[str, Any],
    erased: Sequence[RemainingArtifact],
    left: Sequence[RemainingArtifact],
    salt: str,
) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    recorded = {row["path_hmac"] for row in document["erased"]}
    rows = [artifact.pseudonymous(salt) | {"when": now} for artifact in erased]
    new = [row for row in rows if row["path_hmac"] not in recorded]
    return {
        **document,
        "erased": [*document["erased"], *new],
        "remaining_artifacts": [artifact.pseudonymous(salt) for artifact in left],
        "supersedes": document["digest"],
    }
