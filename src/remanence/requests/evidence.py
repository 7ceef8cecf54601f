"""Read and verify the evidence of a request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.errors import DataError
from remanence.requests.signing import digest_holds, file_sha256, hash_ids, serialize, signature_holds
from remanence.storage import SEAL, open_folder

FILE = "evidence.json"
PAGE = "evidence.html"
KIND = "evidence"
FORMAT = 2
_RESULTS = ("plan", "actual", "audit", "bounds", "remaining_artifacts", "erased")
_NEEDED = ("request", "model", "made", *_RESULTS, "signature")


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
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DataError(
            f"{path} must be an evidence.json; it is not JSON. It was damaged or changed."
        ) from None
    if not isinstance(document, dict) or document.get("remanence") != KIND:
        raise DataError(f"{path} must be an evidence.json; it is another document.")
    if document.get("format") != FORMAT:
        raise DataError(
            f"{path} is evidence of format {document.get('format')}; this version reads format {FORMAT}."
        )
    if missing := [name for name in _NEEDED if name not in document]:
        raise DataError(f"{path} lacks {', '.join(missing)}. It was damaged or changed.")
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
        sealed = open_folder(folder).files().get(FILE) == file_sha256(path)
        checks.append(Check("it is the evidence that the run was sealed with", sealed))
    if ids is not None:
        checks.append(Check("the ids are those of the request", _same_ids(document, folder, ids)))
    return checks


def _check_document(document: Mapping[str, Any], path: Path, public_key: str | None) -> Iterator[Check]:
    signature = document["signature"]
    unchanged = path.read_bytes() == serialize(document)
    yield Check("the document is written as Remanence writes it, byte for byte", unchanged)
    yield Check("the digest matches the content", digest_holds(document))
    if signature is not None:
        yield Check("the signature matches the content and the public key", signature_holds(document))
    if public_key is not None:
        signer = None if signature is None else signature.get("public_key")
        yield Check("it was signed with the given key", signer == public_key)


def _check_files(document: Mapping[str, Any], folder: Path) -> Iterator[Check]:
    for name, digest in document["model"]["after"]["files"].items():
        file = folder / name
        holds = file.is_file() and file_sha256(file) == digest
        yield Check(f"{file} is the file that the evidence is about", holds)


def _same_ids(document: Mapping[str, Any], folder: Path, ids: Sequence[int | str]) -> bool:
    recorded = document["request"]["ids"]
    if recorded["how"] == "plain":
        return sorted(map(str, recorded["values"])) == sorted(map(str, ids))
    row = open_folder(folder, "training").rows("ledger")[-1]
    return sorted(hash_ids(ids, row["salt"])) == sorted(recorded["values"])
