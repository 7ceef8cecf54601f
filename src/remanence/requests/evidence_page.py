"""The page of the evidence: one printed page for a reader without a technical background, and one with the figures.

It is made from the signed content alone, so its hash can be part of that content.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from remanence.report import render_html
from remanence.requests.signing import fingerprint

_ADDED_LATER = ("page_sha256", "digest", "signature", "signer")
_LEDGER_ROWS = 5
"""Number of earlier requests on the page, so that it prints on two sheets; evidence.json has all of them."""

_LINES, _ROWS = 8, 32
"""Lines of varying number that fit on the first and on the second printed page."""


def render_page(content: Mapping[str, Any], public_key: str | None) -> str:
    """The page as HTML.

    Args:
        content: the predicate of the evidence, finished or not.
        public_key: the key that signs it, as hexadecimal digits; None if it is not signed.
    """
    kept = {name: value for name, value in content.items() if name not in _ADDED_LATER}
    signed = json.loads(json.dumps(kept, sort_keys=True))  # in the order in which it is read again
    return render_html(
        "evidence.html",
        **signed,
        compared=[row for row in signed["audit"] if row["verdict"] != "unknown"],
        test=next((row for row in signed["audit"] if row["metric"] == "test"), None),
        cost={row["what"]: row for row in signed["actual"]["costs"]},
        fingerprint=None if public_key is None else fingerprint(public_key),
        remaining=_grouped(signed["remaining_artifacts"]),
        erased_since=_grouped(signed["erased"]),
        last_requests=signed["ledger"][-_LEDGER_ROWS:],
        scales=_scales(signed),
    )


def _scales(content: Mapping[str, Any]) -> tuple[float, float]:
    """How much smaller the two printed pages are set, so that each fits on one sheet of A4."""
    lines = sum(1 + len(sentence) // 120 for sentence in content["plan"]["caveats"])
    lines += len(_grouped(content["remaining_artifacts"])) + len(_grouped(content["erased"]))
    lines += len(str(content["request"]["skipped"])) // 100
    rows = 2 * len(content["audit"]) + len(content["model"]["after"]["files"])
    rows += sum(1 + len(sentence) // 150 for sentence in content["not_measured"])
    return _fitting(lines, _LINES), _fitting(rows, _ROWS)


def _fitting(size: int, room: int) -> float:
    """Smaller by a sixtieth per line beyond those that there is room for."""
    return round(1 / (1 + max(0, size - room) / 60), 3)


def _grouped(artifacts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line per kind of artifact, with their number."""
    counts = Counter((row["description"], bool(row.get("purge_erases"))) for row in artifacts)
    return [
        {"count": count, "description": description, "purge_erases": erases}
        for (description, erases), count in counts.items()
    ]
