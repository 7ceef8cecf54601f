"""The evidence of a request: one document that says what was asked, done and measured, and that can be checked."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from remanence._version import __version__
from remanence.errors import DataError
from remanence.report import write_html
from remanence.requests.signing import digest_holds, fingerprint, hidden, rendered, signature_holds
from remanence.storage import SEAL, atomic, open_folder

FILE = "evidence.json"
PAGE = "evidence.html"
KIND = "evidence"
FORMAT = 1
_NEEDED = ("request", "plan", "actual", "audit", "bounds", "model", "remains", "erased", "made", "signature")
_FEW = 3
REVEALS = (
    "This document says something about the examples it is about. The number of steps grows with how strongly an "
    "example pulled on the model, so publishing it, or any figure here, tells a reader how unusual the example was and "
    "that it had been trained on. Give it to those who must see it and to nobody else."
)


@dataclass(frozen=True)
class Check:
    """One thing that was verified."""

    what: str
    holds: bool


def versions() -> dict[str, str]:
    """What computed this."""
    packages = ("torch", "numpy", "scipy", "cryptography")
    return {
        "remanence": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def write_evidence(folder: Path, document: Mapping[str, Any]) -> list[str]:
    """Put a sealed document and its page into a folder; the names of the files."""
    atomic.write_bytes(folder / FILE, rendered(document))
    signature = document["signature"]
    name = None if signature is None else fingerprint(signature["public_key"])
    grouped = _grouped(document["remains"])
    write_html(folder / PAGE, "evidence.html", **document, fingerprint=name, grouped_remains=grouped)
    return [FILE, PAGE]


def _grouped(remains: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Many artifacts of one sort in one place become one line; the document has them all."""
    together: dict[tuple[str, str, bool], list[str]] = {}
    for row in remains:
        place = str(Path(row["path"]).parent)
        together.setdefault((place, row["what"], row["purge_erases"]), []).append(row["path"])
    lines = []
    for (place, what, erases), paths in together.items():
        if len(paths) > _FEW:
            lines.append(
                {"path": f"{place}/…", "what": f"{len(paths)} times: {what}", "purge_erases": erases}
            )
        else:
            lines += [{"path": path, "what": what, "purge_erases": erases} for path in paths]
    return lines


def read_evidence(path: Path) -> dict[str, Any]:
    """The document in a file; whether it is true is for `verify_evidence` to say."""
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
    path: Path, *, run: Path | None = None, public_key: str | None = None, ids: list[int | str] | None = None
) -> list[Check]:
    """Check everything that can be checked.

    Args:
        path: the evidence.json.
        run: the folder of the model it is about; the file's own by default.
        public_key: who must have signed it, as hexadecimal digits.
        ids: examples that must be exactly those of the request; needs the run's ledger, which has the salt.
    """
    document = read_evidence(path)
    signed = document.get("signature") is not None
    found = [
        Check(
            "the document is written as Remanence writes it, byte for byte",
            path.read_bytes() == rendered(document),
        ),
        Check("its content is what its digest was taken of", digest_holds(document)),
    ]
    if signed:
        found.append(Check("the signature fits its content and its public key", signature_holds(document)))
    if public_key is not None:
        named = document["signature"].get("public_key") if signed else None
        found.append(Check("it was signed with the key that was given", named == public_key))
    folder = path.parent if run is None else run
    for name, digest in document["model"]["after"]["files"].items():
        file = folder / name
        holds = file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest
        found.append(Check(f"{file} is the file that the evidence is about", holds))
    if path.parent == folder and (folder / SEAL).exists():
        own = hashlib.sha256(path.read_bytes()).hexdigest()
        found.append(
            Check(
                "it is the evidence that the run was sealed with",
                open_folder(folder).files().get(FILE) == own,
            )
        )
    if ids is not None:
        found.append(Check("the ids are those of the request", _same_ids(document, folder, ids)))
    return found


def _same_ids(document: Mapping[str, Any], folder: Path, ids: list[int | str]) -> bool:
    told = document["request"]["ids"]
    if told["how"] == "plain":
        return sorted(map(str, told["values"])) == sorted(map(str, ids))
    row = open_folder(folder, "training").rows("ledger")[-1]
    return sorted(hidden(ids, row["salt"])) == sorted(told["values"])
