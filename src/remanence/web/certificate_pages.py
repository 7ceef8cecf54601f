"""What is claimed to bound something, and what each claim is worth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from remanence.errors import DataError, RemanenceError
from remanence.requests.request_ledger import read_ledger
from remanence.web.page_rendering import page
from remanence.web.run_catalog import Shelf, Shelved

_NEEDED = ("status", "k_instance", "epsilon", "delta", "reasons", "data", "n", "consistent")
SCORE = "privacy_loss"


def add_certificate_pages(app: FastAPI, shelf: Shelf, certificates: Sequence[Path]) -> None:
    """Serve the page."""

    @app.get("/certificates")
    def claims() -> HTMLResponse:
        return page(
            "certificates.html",
            runs=[_claims_of(number, path, shelved) for number, path, shelved in shelf.all()],
            certificates=[_certificate(path) for path in certificates],
        )


def read_certificate(path: Path) -> dict[str, Any]:
    """What `remanence certify --json` printed; anything else is refused."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise DataError(f"{path} must be what `remanence certify --json` prints; it is not there.") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or any(name not in found for name in _NEEDED):
        raise DataError(f"{path} must be what `remanence certify --json` prints; it is something else.")
    return found


def _certificate(path: Path) -> dict[str, Any]:
    try:
        return {"path": path, "found": read_certificate(path), "why": ""}
    except RemanenceError as error:
        return {"path": path, "found": None, "why": str(error)}


def _claims_of(number: int, path: Path, shelved: Shelved | str) -> dict[str, Any]:
    empty: dict[str, Any] = {"number": number, "path": path, "losses": None, "past": [], "why": ""}
    if isinstance(shelved, str):
        return empty | {"why": shelved}
    try:
        known = empty | {"past": read_ledger(shelved.run)}
    except (RemanenceError, OSError, ValueError, KeyError) as error:
        return empty | {"why": f"Its ledger cannot be read: {error}"}
    try:
        return known | {"losses": _losses(shelved)}
    except RemanenceError as error:
        return known | {"why": str(error)}


def _losses(shelved: Shelved) -> dict[str, Any]:
    """The privacy losses of a run's examples as one line, with what they are worth."""
    scores, mechanism = shelved.scores[SCORE], shelved.trace.mechanism
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
