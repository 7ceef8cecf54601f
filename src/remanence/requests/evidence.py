"""Read and verify the evidence of a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.errors import DataError, RemanenceError
from remanence.requests.attestation import digest_holds, parse, serialize, signature_holds
from remanence.requests.signing import file_hmac, file_sha256, hash_ids, person_hmac, reference_of
from remanence.storage import SEAL, Folder, open_folder

FILE = "evidence.json"
PAGE = "evidence.html"
_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Check:
    """One statement that was verified, and whether it is true."""

    what: str
    holds: bool


def evidence_folder(number: int) -> str:
    """Where a run has its evidence: beside the model, or for the requests of a batch, from 1 on, in a folder each."""
    return f"evidence-{number}" if number else ""


def read_evidence(path: str | Path) -> dict[str, Any]:
    """The content of an evidence.json, with its `signature` (None if it is not signed); not verified."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} must be an evidence.json; it is not there.")
    document = parse(path.read_bytes(), path)
    if (document["signer"] is None) != (document["signature"] is None):
        raise DataError(
            f"{path} must be signed by the key that it names. Its envelope was removed or replaced."
        )
    return document


def verify_evidence(
    path: str | Path,
    *,
    run: str | Path | None = None,
    public_key: str | None = None,
    ids: Sequence[int | str] | None = None,
    person: str | None = None,
) -> list[Check]:
    """Check everything that can be checked.

    Without `public_key`, a signature shows that the content belongs to the key that it names, not whose key that is.

    Args:
        path: the evidence.json.
        run: the folder of the model; by default the folder of the file, or of a batch, the folder around it.
        public_key: the key that must have signed it, as hexadecimal digits.
        ids: the list of the request: all its examples, and as many others as were skipped. Needs the ledger of the run,
            which has the salt.
        person: the person that the request must be for. Needs the ledger of the run.
    """
    path = Path(path)
    document = read_evidence(path)
    folder = _run_of(path) if run is None else Path(run)
    _refuse_other_model(document, path, folder)
    checks = [*_check_document(document, path, public_key), *_check_files(document, folder)]
    if _run_of(path) == folder and (folder / SEAL).exists():
        checks += _check_folder(folder, path)
    if ids is not None:
        checks.append(Check("the ids are those of the request", _same_ids(document, folder, ids)))
    if person is not None:
        checks.append(Check("the person is that of the request", _same_person(document, folder, person)))
    return checks


def _run_of(path: Path) -> Path:
    """The folder of the run that evidence is part of."""
    folder = path.parent
    is_part = folder.name.startswith(evidence_folder(1)[:-1]) and not (folder / SEAL).exists()
    return folder.parent if is_part and (folder.parent / SEAL).exists() else folder


def not_covered(folder: Path) -> list[str]:
    """Files in the folder of a run that `verify_evidence` does not cover, relative to the folder."""
    covered = {SEAL, *open_folder(folder).files()}
    for sealed in folder.glob(f"*/**/{SEAL}"):
        inside = sealed.parent.relative_to(folder)
        covered |= {str(inside / name) for name in (SEAL, *open_folder(sealed.parent).files())}
    files = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return sorted(name for name in files if name not in covered)


def _refuse_other_model(document: Mapping[str, Any], path: Path, folder: Path) -> None:
    """Evidence beside an intact run that it is not about is a mistake, not a forgery."""
    if not (folder / SEAL).exists():
        return
    sealed, weights = open_folder(folder).files().get(_WEIGHTS), folder / _WEIGHTS
    intact = weights.is_file() and file_sha256(weights) == sealed
    if intact and sealed != document["model"]["after"]["weights"]:
        raise DataError(f"{path} is evidence about another model than the one in {folder}.")


def _check_document(document: Mapping[str, Any], path: Path, public_key: str | None) -> Iterator[Check]:
    signer = document["signer"]
    unchanged = path.read_bytes() == serialize(document)
    yield Check("the document is written as Remanence writes it, byte for byte", unchanged)
    yield Check("the digest matches the content", digest_holds(document))
    if signer is not None:
        yield Check("the signature matches the content and the public key", signature_holds(document))
    if public_key is not None:
        holds = signer is not None and signer["public_key"] == public_key
        yield Check("it was signed with the given key", holds)
    page = path.with_name(PAGE)
    if page.exists():
        yield Check(f"{page} is the page of this document", file_sha256(page) == document["page_sha256"])


def _check_files(document: Mapping[str, Any], folder: Path) -> Iterator[Check]:
    after = document["model"]["after"]
    for name, digest in after["files"].items():
        file = folder / name
        holds = file.is_file() and file_sha256(file) == digest
        yield Check(f"{file} is the file that the evidence is about", holds)
    salt = _salt(document, folder)
    for name, digest in after["keyed_files"].items():
        file = folder / name
        holds = salt is not None and file.is_file() and file_hmac(file, salt) == digest
        yield Check(f"{file} is the file that the evidence is about (by the key in the run's ledger)", holds)


def _check_folder(folder: Path, path: Path) -> Iterator[Check]:
    """The seal of the run and of the folders inside it."""
    yield Check(
        "it is the evidence that the run was sealed with",
        _seal_of(folder).files().get(path.relative_to(folder).as_posix()) == file_sha256(path),
    )
    for sealed in (folder, *sorted(seal.parent for seal in folder.glob(f"*/**/{SEAL}"))):
        yield Check(f"every file of {sealed} is as it was sealed", _is_intact(sealed))


def _seal_of(folder: Path) -> Folder:
    return open_folder(folder, "training")


def _is_intact(folder: Path) -> bool:
    try:
        open_folder(folder).verify()
    except (RemanenceError, OSError):
        return False
    return True


def _salt(document: Mapping[str, Any], folder: Path) -> str | None:
    """The key of the hashes of a request, from the private ledger of the run; None without it."""
    try:
        salts = [str(row["salt"]) for row in _seal_of(folder).rows("ledger")]
        reference = document["request"]["reference"]
        return next((salt for salt in reversed(salts) if reference_of(salt) == reference), None)
    except (RemanenceError, OSError, KeyError, TypeError, ValueError):
        return None


def _same_ids(document: Mapping[str, Any], folder: Path, ids: Sequence[int | str]) -> bool:
    """Whether the list has every example of the request, and only as many others as were skipped."""
    request = document["request"]
    recorded, skipped = set(map(str, request["ids"]["values"])), sum(request["skipped"].values())
    if request["ids"]["how"] == "plain":
        listed = set(map(str, ids))
    elif (salt := _salt(document, folder)) is not None:
        listed = set(hash_ids(ids, salt))
    else:
        return False
    return recorded <= listed and len(listed - recorded) == skipped


def _same_person(document: Mapping[str, Any], folder: Path, person: str) -> bool:
    salt, recorded = _salt(document, folder), document["request"]["person_hmac"]
    return salt is not None and bool(recorded) and recorded == person_hmac(person, salt)
