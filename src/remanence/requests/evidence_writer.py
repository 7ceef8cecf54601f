"""Write the evidence of a request: evidence.json, and evidence.html made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remanence._version import __version__
from remanence.requests.attestation import serialize, sign
from remanence.requests.evidence import FILE, PAGE
from remanence.requests.evidence_page import render_page
from remanence.requests.outcome import Outcome
from remanence.requests.plan import Plan
from remanence.requests.remaining_artifacts import RemainingArtifact
from remanence.requests.request import ForgetOptions
from remanence.requests.request_ledger import public_rows
from remanence.requests.signing import (
    file_hmac,
    file_sha256,
    hash_ids,
    person_hmac,
    public_hex,
    reference_of,
)
from remanence.storage import atomic
from remanence.training import Run
from remanence.versions import versions

_WITH_IDS = (
    "config.toml",
    "ledger.jsonl",
    "ledger-ids.json",
    "poison.safetensors",
    "removed.safetensors",
    "trace.safetensors",
    "trace.json",
)
"""Files whose plain digest would let somebody test a guess of the removed ids."""
_DISCLOSURE = (
    "This document discloses information about the examples. The number of steps grows with the influence of an "
    "example on the model, so every figure here tells a reader how unusual the examples were, and that they had been "
    "in the training data. Share it only with those who need it."
)


def evidence_document(
    run: Run,
    plan: Plan,
    options: ForgetOptions,
    *,
    actual: Mapping[str, Any],
    audit: Sequence[Mapping[str, Any]],
    not_measured: Sequence[str],
    ledger: Sequence[Mapping[str, Any]],
    out: Path,
    files: Sequence[str],
    remaining: Sequence[RemainingArtifact],
    supersedes: str | None = None,
) -> dict[str, Any]:
    """The evidence as JSON values, with the hash of its page, its digest and, if there is a key, its signature.

    The last row of the ledger is the request in question. Digests of files in which an id could be guessed are keyed
    with the salt of that row, which stays in the ledger.
    """
    row = ledger[-1]
    document = {
        "version": __version__,
        "made": row["when"],
        "outcome": row["outcome"],
        "outcome_meaning": Outcome(row["outcome"]).meaning,
        "request": {
            "reference": reference_of(row["salt"]),
            "asked_by": options.asked_by,
            "size": row["size"],
            "skipped": dict(plan.request.skipped),
            "person_hmac": person_hmac(plan.request.person, row["salt"]),
            "list_hmac": _keyed(plan.request.file_sha256, row["salt"]),
            "ids": _ids_document(row, plain=options.plain_ids),
        },
        "model": {
            "data": Path(run.settings.data_name).name,
            "architecture": run.settings.model_name,
            "before": {"weights": row["model_before"]},
            "after": {"weights": row["model_after"], **_file_digests(out, files, row["salt"])},
        },
        "method": {"name": row["method"], "options": row["options"], "seed": row["seed"]},
        "plan": plan.document(ids=False),
        "actual": actual,
        "audit": audit,
        "not_measured": not_measured,
        "bounds": [row["bound"], row["cumulative"]],
        "ledger": public_rows(ledger),
        "remaining_artifacts": [artifact.pseudonymous(row["salt"]) for artifact in remaining],
        "erased": [],
        "supersedes": supersedes,
        "disclosure": _DISCLOSURE,
        "versions": versions(),
    }
    return finish_document(document, options.key)


def method_document(plan: Plan, options: ForgetOptions) -> dict[str, Any]:
    """The method that carries out a request, with its hyperparameters and its seed."""
    if options.method == "retrain":
        return {"method": "retrain", "options": {}, "seed": options.seed}
    return {"method": plan.method, "options": plan.public_options, "seed": options.seed}


def finish_document(content: Mapping[str, Any], key: Ed25519PrivateKey | None) -> dict[str, Any]:
    """The document with the hash of its page, its digest and, if there is a key, its signature."""
    page = render_page(content, None if key is None else public_hex(key))
    return sign({**content, "page_sha256": hashlib.sha256(page.encode()).hexdigest()}, key)


def write_evidence(folder: Path, document: Mapping[str, Any]) -> list[str]:
    """Write a finished document and its page; returns the names of the files."""
    signer = document["signer"]
    page = render_page(document, None if signer is None else signer["public_key"])
    atomic.write_bytes(folder / FILE, serialize(document))
    atomic.write_text(folder / PAGE, page)
    return [FILE, PAGE]


def _file_digests(out: Path, files: Sequence[str], salt: str) -> dict[str, dict[str, str]]:
    return {
        "files": {name: file_sha256(out / name) for name in files if name not in _WITH_IDS},
        "keyed_files": {name: file_hmac(out / name, salt) for name in files if name in _WITH_IDS},
    }


def _keyed(text: str, salt: str) -> str:
    return hash_ids([text], salt)[0] if text else ""


def _ids_document(row: Mapping[str, Any], *, plain: bool) -> dict[str, Any]:
    if plain:
        return {"how": "plain", "values": row["ids"]}
    return {
        "how": "HMAC-SHA256, keyed with a salt that is kept in the ledger of the run",
        "values": sorted(hash_ids(row["ids"], row["salt"])),
    }
