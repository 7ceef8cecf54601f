"""The how-to pages: every shell and Python block runs, from top to bottom; what is not run says so and is counted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remanence.cli.main import app

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))
TAKEN = {
    "barriers": ("run", "forgotten", "hardest.json", "oracle1", "oracle2", "oracle3"),
    "dashboard": ("run", "forgotten", "oracle1"),
    "data": ("patients.csv",),
    "forget-sets": ("run", "requests.txt", "people.csv"),
    "processes": ("hard.json",),
    "requests": ("request.csv",),
    "tune": ("run", "hardest.json"),
    "unlearn": ("more.json",),
}
"""What a page takes for granted."""
NOT_RUN = {"data": 1, "own-model": 2, "processes": 5, "requests": 2, "studies": 5, "unlearn": 1}
"""Commands behind a $: a cluster, data to be fetched, packages that are no part of ours, or run on another page."""


LONG = ("audit", "evidence", "processes", "requests")
"""Pages that calibrate a run, audit several models or start many processes; run by `make test-journeys`."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.journey] if path.stem in LONG else [])
        for path in PAGES
    ],
)
def test_every_block_runs(
    path: Path, page: Callable[..., Any], take: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    take(*TAKEN.get(path.stem, ()))
    assert "python" in page(path).run()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_is_not_run_is_counted_and_exists(path: Path, page: Callable[..., Any]) -> None:
    lines = page(path).not_run()
    assert len(lines) == NOT_RUN.get(path.stem, 0)
    for line in lines:
        before, program, arguments = line.split("#")[0].partition("remanence ")
        assert program
        assert before in ("$ ", "$ torchrun --nproc-per-node 2 -m ")
        app.parse_args(arguments.split())
