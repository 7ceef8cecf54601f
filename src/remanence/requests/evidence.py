"""Read and verify the evidence of a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.errors import DataError, RemanenceError, RunFolderError
from remanence.requests.signing import (
    digest_holds,
    file_hmac,
    file_sha256,
    hash_ids,
    is_signature,
    serialize,
    signature_holds,
)
from remanence.storage import SEAL, Folder, open_folder
from remanence.storage.parsing import parse_json

FILE = "evidence.json"
PAGE = "evidence.html"
KIND = "evidence"
FORMAT = 3
_SHAPE: Mapping[str, type | tuple[type, ...]] = {
    "version": str,
    "made": str,
    "request": dict,
    "model": dict,
    "method": dict,
    "plan": dict,
    "actual": dict,
    "audit": list,
    "not_measured": list,
    "bounds": list,
    "ledger": list,
    "remaining_artifacts": list,
    "erased": list,
    "supersedes": (str, type(None)),
    "disclosure": str,
    "versions": dict,
    "page_sha256": str,
    "digest": str,
    "signature": (dict, type(None)),
}


@dataclass(frozen=True)
class Check:
    """One statement that was verified, and whether it is true."""

    what: str
    holds: bool


def read_evidence(path: Path) -> dict[str, Any]:
    """The content of an evidence.json; not verified."""
    if not path.is_file():
        raise DataError(f"{path} must be an evidence.json; it is not there.")
    try:
        document = parse_json(path.read_bytes(), path)
    except RunFolderError as error:
        raise DataError(f"{path} must be an evidence.json. It was damaged or changed: {error}") from None
    if not isinstance(document, dict) or document.get("remanence") != KIND:
        raise DataError(f"{path} must be an evidence.json; it is another document.")
    if document.get("format") != FORMAT:
        raise DataError(
            f"{path} is evidence of format {str(document.get('format'))[:20]}; this version reads format {FORMAT}."
        )
    for name, kind in _SHAPE.items():
        if name not in document or not isinstance(document[name], kind):
            raise DataError(
                f"{path} lacks {name}, or it is not what it should be. It was damaged or changed."
            )
    if not _is_about_files(document["model"]) or not _is_about_ids(document["request"]):
        raise DataError(f"{path} does not say which files and ids it is about. It was damaged or changed.")
    if not is_signature(document["signature"]):
        raise DataError(f"{path} has a signature that Remanence would not write. It was damaged or changed.")
    return document


def verify_evidence(
    path: Path,
    *,
    run: Path | None = None,
    public_key: str | None = None,
    ids: Sequence[int | str] | None = None,
) -> list[Check]:
    """Check everything that can be checked.

    Args:
        path: the evidence.json.
        run: the folder of the model; the folder of the file by default.
        public_key: the key that must have signed it, as hexadecimal digits.
        ids: examples that must be exactly those of the request. Needs the ledger of the run, which has the salt.
    """
    document = read_evidence(path)
    folder = path.parent if run is None else run
    checks = [*_check_document(document, path, public_key), *_check_files(document, folder)]
    if path.parent == folder and (folder / SEAL).exists():
        checks += _check_folder(folder, path)
    if ids is not None:
        checks.append(Check("the ids are those of the request", _same_ids(document, folder, ids)))
    return checks


def not_covered(folder: Path) -> list[str]:
    """Files in the folder of a run that `verify_evidence` does not cover, relative to the folder."""
    covered = {SEAL, *open_folder(folder).files()}
    for sealed in folder.glob(f"*/{SEAL}"):
        inside = sealed.parent.relative_to(folder)
        covered |= {str(inside / name) for name in (SEAL, *open_folder(sealed.parent).files())}
    files = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return sorted(name for name in files if name not in covered)


def _check_document(document: Mapping[str, Any], path: Path, public_key: str | None) -> Iterator[Check]:
    signature = document["signature"]
    unchanged = path.read_bytes() == serialize(document)
    yield Check("the document is written as Remanence writes it, byte for byte", unchanged)
    yield Check("the digest matches the content", digest_holds(document))
    if signature is not None:
        yield Check("the signature matches the content and the public key", signature_holds(document))
    if public_key is not None:
        signer = None if signature is None else signature["public_key"]
        yield Check("it was signed with the given key", signer == public_key)
    page = path.with_name(PAGE)
    if page.exists():
        yield Check(f"{page} is the page of this document", file_sha256(page) == document["page_sha256"])


def _check_files(document: Mapping[str, Any], folder: Path) -> Iterator[Check]:
    after = document["model"]["after"]
    for name, digest in after["files"].items():
        file = folder / name
        holds = file.is_file() and file_sha256(file) == digest
        yield Check(f"{file} is the file that the evidence is about", holds)
    for name, digest in after["keyed_files"].items():
        file, salt = folder / name, _salt(folder)
        holds = salt is not None and file.is_file() and file_hmac(file, salt) == digest
        yield Check(f"{file} is the file that the evidence is about (by the key in the run's ledger)", holds)


def _check_folder(folder: Path, path: Path) -> Iterator[Check]:
    """The seal of the run and of the folders inside it."""
    yield Check(
        "it is the evidence that the run was sealed with",
        _seal_of(folder).files().get(FILE) == file_sha256(path),
    )
    for sealed in (folder, *sorted(seal.parent for seal in folder.glob(f"*/{SEAL}"))):
        yield Check(f"every file of {sealed} is as it was sealed", _is_intact(sealed))


def _seal_of(folder: Path) -> Folder:
    return open_folder(folder, "training")


def _is_intact(folder: Path) -> bool:
    try:
        open_folder(folder).verify()
    except (RemanenceError, OSError):
        return False
    return True


def _salt(folder: Path) -> str | None:
    """The key of the ids' hashes, from the private ledger of the run; None without it."""
    try:
        row = _seal_of(folder).rows("ledger")[-1]
        bytes.fromhex(row["salt"])
    except (RemanenceError, OSError, IndexError, KeyError, TypeError, ValueError):
        return None
    return str(row["salt"])


def _same_ids(document: Mapping[str, Any], folder: Path, ids: Sequence[int | str]) -> bool:
    recorded = document["request"]["ids"]
    if recorded["how"] == "plain":
        return sorted(map(str, recorded["values"])) == sorted(map(str, ids))
    salt = _salt(folder)
    return salt is not None and sorted(hash_ids(ids, salt)) == sorted(map(str, recorded["values"]))


def _is_about_files(model: Mapping[str, Any]) -> bool:
    after = model.get("after")
    return (
        isinstance(after, dict)
        and all(isinstance(after.get(name), dict) for name in ("files", "keyed_files"))
        and all(
            isinstance(digest, str) and name == Path(name).name
            for files in (after["files"], after["keyed_files"])
            for name, digest in files.items()
        )
    )


def _is_about_ids(request: Mapping[str, Any]) -> bool:
    ids = request.get("ids")
    return isinstance(ids, dict) and isinstance(ids.get("how"), str) and isinstance(ids.get("values"), list)
