"""The how-to pages on data and forget sets: their Python runs, their commands exist."""

import re
from pathlib import Path

import pytest

from remanence.cli.main import app

PAGES = [Path(__file__).parents[2] / "docs" / "how-to" / f"{name}.md" for name in ("data", "forget-sets")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(page), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_parse(page: Path) -> None:
    lines = re.findall(r"^(remanence [^#\n]*)", page.read_text(), re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        app.parse_args(line.split()[1:])
