"""The page of certificates and of the bounds of all runs, each with its status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from remanence.errors import DataError, RemanenceError, RunFolderError
from remanence.requests.request_ledger import read_ledger
from remanence.web.file_shapes import (
    Shape,
    has_shape,
    is_flag,
    is_number,
    is_number_or_none,
    is_text,
)
from remanence.web.page_rendering import page
from remanence.web.run_catalog import OpenedRun, RunCatalog

_CERTIFICATE: Shape = {
    "status": is_text,
    "k_instance": lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
    "epsilon": is_number,
    "delta": is_number,
    "reasons": lambda value: isinstance(value, list),
    "data": is_text,
    "n": is_number,
    "consistent": lambda value: value is None or is_flag(value),
}
SCORE = "privacy_loss"


def add_certificate_pages(app: FastAPI, catalog: RunCatalog, certificates: Sequence[Path]) -> None:
    @app.get("/certificates")
    def claims() -> HTMLResponse:
        return page(
            "certificates.html",
            runs=[_claims_of(number, path, opened) for number, path, opened in catalog.all()],
            certificates=[_certificate(path) for path in certificates],
        )


def read_certificate(path: Path) -> dict[str, Any]:
    """What `remanence certify --json` printed; anything else is refused."""
    try:
        certificate = json.loads(path.read_bytes())
    except OSError:
        raise DataError(
            f"{path} must be what `remanence certify --json` prints; the file is missing."
        ) from None
    except (ValueError, RecursionError):
        certificate = None
    if not has_shape(certificate, _CERTIFICATE):
        raise DataError(f"{path} must be what `remanence certify --json` prints; it is something else.")
    content: dict[str, Any] = certificate
    return content


def _certificate(path: Path) -> dict[str, Any]:
    try:
        return {"path": path, "content": read_certificate(path), "why": ""}
    except RemanenceError as error:
        return {"path": path, "content": None, "why": str(error)}


def _claims_of(number: int, path: Path, opened: OpenedRun | str) -> dict[str, Any]:
    empty: dict[str, Any] = {"number": number, "path": path, "losses": None, "past": [], "why": ""}
    if isinstance(opened, str):
        return empty | {"why": opened}
    try:
        known = empty | {"past": _past(opened)}
    except (RemanenceError, OSError) as error:
        return empty | {"why": f"Its ledger cannot be read: {error}"}
    try:
        return known | {"losses": _losses(opened)}
    except (RemanenceError, OSError) as error:
        return known | {"why": str(error)}


def _is_bound(value: Any) -> bool:
    return has_shape(value, {"value": is_number_or_none, "status": is_text})


_LEDGER_ROW: Shape = {
    "request": is_text,
    "size": is_number,
    "when": is_text,
    "bound": _is_bound,
    "cumulative": _is_bound,
}


def _past(opened: OpenedRun) -> list[dict[str, Any]]:
    """The requests that the run's ledger lists."""
    rows = read_ledger(opened.run)
    if not all(has_shape(row, _LEDGER_ROW) for row in rows):
        raise RunFolderError("it is damaged, or was changed by hand.")
    return rows


def _losses(opened: OpenedRun) -> dict[str, Any]:
    """The range of the privacy losses of a run, with their status."""
    scores, mechanism = opened.scores[SCORE], opened.trace.mechanism
    low, middle, high = np.quantile(scores.values, (0, 0.5, 1), method="higher")
    return {
        "status": scores.status,
        "reasons": scores.reasons,
        "low": float(low),
        "middle": float(middle),
        "high": float(high),
        "noise": mechanism.sigma,
        "assumed": mechanism.assumed,
        "count": len(scores.ids),
    }
