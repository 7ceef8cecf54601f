"""The evidence as Chromium prints it: two sheets of A4, one to read and one with the figures."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from remanence.requests import read_evidence
from remanence.requests.evidence_page import render_page

_CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-pdf-header-footer",
)
_A4 = (595, 842)
"""Points."""

pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed here")


def printed(page: Path, tmp_path: Path) -> list[tuple[int, int]]:
    """The size of every sheet."""
    assert _CHROMIUM is not None
    out = tmp_path / "page.pdf"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    subprocess.run(
        [_CHROMIUM, *_FLAGS, profile, f"--print-to-pdf={out}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    content = out.read_bytes()
    boxes = re.findall(rb"/MediaBox\s*\[\s*0\s+0\s+([\d.]+)\s+([\d.]+)\s*\]", content)
    assert len(boxes) == len(re.findall(rb"/Type\s*/Page\b", content))
    return [(round(float(width)), round(float(height))) for width, height in boxes]


def crowded(document: dict[str, Any], more: int) -> dict[str, Any]:
    """The same evidence with longer lists of everything that varies."""
    caveat = (
        "Outside the calibrated range: its size, 400 examples, is beyond that of the calibration sets, which had "
        "between 20 and 200 examples, so that the forecast is an extrapolation."
    )
    content = copy.deepcopy(document)
    content["plan"]["caveats"] = [caveat] * more
    content["not_measured"] = [caveat] * more
    row = next(row for row in content["audit"] if row["verdict"] != "unknown")
    content["audit"] = [row | {"metric": f"metric_{number}"} for number in range(2 + 2 * more)]
    content["ledger"] = [content["ledger"][-1]] * 40
    artifact = {"path_hmac": "", "purge_erases": False}
    content["remaining_artifacts"] = [artifact | {"description": f"kind {number}"} for number in range(more)]
    content["erased"] = content["remaining_artifacts"]
    return content


def test_it_prints_on_two_sheets_of_a4(carried_out: Path, tmp_path: Path) -> None:
    page = carried_out / "new" / "evidence.html"
    assert printed(page, tmp_path) == [_A4, _A4]
    document = read_evidence(carried_out / "new" / "evidence.json")
    for more in (0, 4, 8):
        crowd = tmp_path / f"{more}.html"
        crowd.write_text(render_page(crowded(document, more), document["signer"]["public_key"]))
        assert printed(crowd, tmp_path) == [_A4, _A4], more
