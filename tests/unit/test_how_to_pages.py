"""The how-to pages: their Python runs, from top to bottom, and their commands exist."""

import re
from pathlib import Path

import pytest

from remanence.cli.main import app

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    page_names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), page_names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_parse(page: Path) -> None:
    lines = re.findall(r"^(remanence [^#\n]*)", page.read_text(), re.MULTILINE)
    for line in lines:
        app.parse_args(line.split()[1:])
