"""Write the evidence of a request: evidence.json, and evidence.html made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remanence._version import __version__
from remanence.report import write_html
from remanence.requests.evidence import FILE, FORMAT, KIND, PAGE
from remanence.requests.plan import Plan
from remanence.requests.remaining_artifacts import RemainingArtifact
from remanence.requests.request import ForgetOptions
from remanence.requests.request_ledger import public_rows
from remanence.requests.signing import fingerprint, hash_ids, serialize, sign
from remanence.storage import atomic
from remanence.training import Run
from remanence.versions import versions

_FEW = 3
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
    files: Mapping[str, str],
    remaining: Sequence[RemainingArtifact],
) -> dict[str, Any]:
    """The evidence as JSON values, with its digest and, if there is a key, its signature.

    The last row of the ledger is the request in question; `files` has the SHA-256 of the new run's files.
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
            "file_sha256": plan.request.file_sha256,
            "ids": _ids_document(row, plain=options.plain_ids),
        },
        "model": {
            "data": run.settings.data,
            "architecture": run.settings.model,
            "before": {"weights": row["model_before"]},
            "after": {"weights": row["model_after"], "files": files},
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
    return sign(document, options.key)


def write_evidence(folder: Path, document: Mapping[str, Any]) -> list[str]:
    """Write a signed document and its page; returns the names of the files."""
    atomic.write_bytes(folder / FILE, serialize(document))
    signature = document["signature"]
    write_html(
        folder / PAGE,
        "evidence.html",
        **document,
        fingerprint=None if signature is None else fingerprint(signature["public_key"]),
        grouped_artifacts=_grouped(document["remaining_artifacts"]),
    )
    return [FILE, PAGE]


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
