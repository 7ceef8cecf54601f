"""Erase what still remembers, and let the evidence record it."""

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
from remanence.requests.evidence import FILE, read_evidence, write_evidence
from remanence.requests.ledger import past
from remanence.requests.remains import Remain, remains_of
from remanence.requests.signing import sealed
from remanence.storage import SEAL, atomic, seal_in_place
from remanence.storage.lock import exclusive
from remanence.training import Run, open_run
from remanence.types import as_ids

_INTENT = ".purging.json"
_LOCK = ".purge.lock"


@dataclass(frozen=True)
class Purged:
    """What was erased and what was left, with why."""

    erased: tuple[Remain, ...]
    left: tuple[Remain, ...]
    evidence: Mapping[str, Any]


def survey(run: Run, look_in: Sequence[Path]) -> list[Remain]:
    """Everything around a run that remembers what has left it."""
    if not past(run):
        raise InputError(
            f"{run.folder.path} must be made by `remanence forget` to be purged for; no request made it."
        )
    around = list(look_in) or [run.folder.path.resolve().parent, *_told(run)]
    ids = as_ids(sorted({each for row in past(run) for each in row["ids"]}))
    return remains_of(run, ids, around)


def _told(run: Run) -> list[Path]:
    """Around the models before, as the evidence has them: they need not lie beside the run."""
    rows = read_evidence(run.folder.path / FILE)["remains"]
    seals = (Path(row["path"]) for row in rows if row["purge_erases"])
    return sorted({seal.parent.parent for seal in seals if seal.name == SEAL})


def purge(path: Path, look_in: Sequence[Path], *, key: Ed25519PrivateKey | None = None) -> Purged:
    """Erase the models before this run with all that is theirs; write it into the evidence, signed as it was.

    What is to be written is noted first, so that a purge that is killed is finished by the next.
    """
    _finish(path)
    run = open_run(path)
    with exclusive(path / _LOCK, f"Another process is purging for {path}; wait for it."):
        found = survey(run, look_in)
        document = read_evidence(path / FILE)
        _check_key(document, key, path)
        ours = tuple(each for each in found if each.ours)
        left = tuple(each for each in found if not each.ours)
        if not ours:
            return Purged((), left, document)
        renewed = sealed(_recorded(document, ours, left), key)
        intent = {"erase": [str(each.path.resolve()) for each in ours], "evidence": renewed}
        atomic.write_text(path / _INTENT, json.dumps(intent) + "\n")
        _finish(path)
    return Purged(ours, left, renewed)


def _finish(path: Path) -> None:
    """Do what was noted, if anything was: erase, renew the evidence, seal; each may be done twice."""
    note = path / _INTENT
    if not note.exists():
        return
    intent = json.loads(note.read_text())
    for each in map(Path, intent["erase"]):
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)
    for folder in {Path(each).parent for each in intent["erase"]}:
        _tidy(folder)
    write_evidence(path, intent["evidence"])
    files = json.loads((path / "remanence.json").read_text())["files"]
    seal_in_place(path, "training", files)
    note.unlink()


def _tidy(folder: Path) -> None:
    """Remove locks and marks of a run that is gone, and its folder if nothing else is in it."""
    if not folder.is_dir():
        return
    for each in folder.glob(".*"):
        if each.is_file() and (
            each.name.startswith((".lock", ".request", ".purge")) or each.suffix == ".lock"
        ):
            each.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _check_key(document: Mapping[str, Any], key: Ed25519PrivateKey | None, path: Path) -> None:
    signature = document["signature"]
    if signature is None:
        return
    if key is None:
        raise InputError(
            f"{path / FILE} is signed; give the --key that signed it, to sign what is added. Nothing was erased."
        )
    if key.public_key().public_bytes_raw().hex() != signature["public_key"]:
        raise RunFolderError(
            f"{path / FILE} was signed with another key than the one given. Nothing was erased."
        )


def _recorded(document: Mapping[str, Any], ours: Sequence[Remain], left: Sequence[Remain]) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    erased = [{"path": str(each.path), "what": each.what, "when": now} for each in ours]
    return {
        **document,
        "erased": [*document["erased"], *erased],
        "remains": [{"path": str(each.path), "what": each.what, "purge_erases": False} for each in left],
        "supersedes": document["digest"],
    }
