"""The README's library example runs as it stands, its commands exist, its links lead somewhere."""

import re
from pathlib import Path

import pytest

from remanence.cli.main import app

README = Path(__file__).parents[2] / "README.md"


def test_the_library_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert "heuristic" in capsys.readouterr().out


def test_the_commands_parse() -> None:
    lines = re.findall(r"^(remanence [^#\n]*)", README.read_text(), re.MULTILINE)
    assert len(lines) >= 7
    for line in lines:
        app.parse_args(line.split()[1:])


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert target.startswith("https://") or (README.parent / target).exists(), target
