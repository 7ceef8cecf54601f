"""Write the evidence of a request: evidence.json, and evidence.html made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remanence._version import __version__
from remanence.report import render_html
from remanence.requests.evidence import FILE, FORMAT, KIND, PAGE
from remanence.requests.plan import Plan
from remanence.requests.remaining_artifacts import RemainingArtifact
from remanence.requests.request import ForgetOptions
from remanence.requests.request_ledger import public_rows
from remanence.requests.signing import file_hmac, file_sha256, fingerprint, hash_ids, serialize, sign
from remanence.storage import atomic
from remanence.training import Run
from remanence.versions import versions

_FEW = 3
_WITH_IDS = ("config.toml", "ledger.jsonl", "removed.safetensors", "trace.safetensors", "trace.json")
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
) -> dict[str, Any]:
    """The evidence as JSON values, with the hash of its page, its digest and, if there is a key, its signature.

    The last row of the ledger is the request in question. Digests of files in which an id could be guessed are keyed
    with the salt of that row, which stays in the ledger.
    """
    row = ledger[-1]
    document = {
        "remanence": KIND,
        "format": FORMAT,
        "version": __version__,
        "made": row["when"],
        "request": {
            "name": row["request"],
            "asked_by": options.asked_by,
            "size": row["size"],
            "list_hmac": _keyed(plan.request.file_sha256, row["salt"]),
            "ids": _ids_document(row, plain=options.plain_ids),
        },
        "model": {
            "data": run.settings.data,
            "architecture": run.settings.model,
            "before": {"weights": row["model_before"]},
            "after": {"weights": row["model_after"], **_file_digests(out, files, row["salt"])},
        },
        "method": {"name": plan.method, "options": dict(plan.options), "seed": options.seed},
        "plan": plan.document(ids=False),
        "actual": actual,
        "audit": audit,
        "not_measured": not_measured,
        "bounds": [row["bound"], row["cumulative"]],
        "ledger": public_rows(ledger),
        "remaining_artifacts": [artifact.document() for artifact in remaining],
        "erased": [],
        "supersedes": None,
        "disclosure": _DISCLOSURE,
        "versions": versions(),
    }
    return finish_document(document, options.key)


def finish_document(content: Mapping[str, Any], key: Ed25519PrivateKey | None) -> dict[str, Any]:
    """The document with the hash of its page, its digest and, if there is a key, its signature."""
    public_key = None if key is None else key.public_key().public_bytes_raw().hex()
    page = _render_page(content, public_key)
    return sign({**content, "page_sha256": hashlib.sha256(page.encode()).hexdigest()}, key)


def write_evidence(folder: Path, document: Mapping[str, Any]) -> list[str]:
    """Write a finished document and its page; returns the names of the files."""
    signature = document["signature"]
    page = _render_page(document, None if signature is None else signature["public_key"])
    atomic.write_bytes(folder / FILE, serialize(document))
    atomic.write_text(folder / PAGE, page)
    return [FILE, PAGE]


def _render_page(content: Mapping[str, Any], public_key: str | None) -> str:
    """The page, made from the signed content alone."""
    return render_html(
        "evidence.html",
        **{
            name: value
            for name, value in content.items()
            if name not in ("page_sha256", "digest", "signature")
        },
        fingerprint=None if public_key is None else fingerprint(public_key),
        grouped_artifacts=_grouped(content["remaining_artifacts"]),
    )


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


def _grouped(artifacts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For the page, many artifacts of one sort in one folder become one line."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for row in artifacts:
        folder = str(Path(row["path"]).parent)
        groups.setdefault((folder, row["description"], row["purge_erases"]), []).append(row["path"])
    lines = []
    for (folder, description, erases), paths in groups.items():
        if len(paths) > _FEW:
            paths, description = [f"{folder}/…"], f"{len(paths)} times: {description}"
        lines += [{"path": path, "description": description, "purge_erases": erases} for path in paths]
    return lines
