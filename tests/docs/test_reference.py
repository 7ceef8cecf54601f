"""The reference names and explains all that is public: every name of the library, every command, every option."""

import inspect
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

import remanence as rm
from remanence.cli.main import app

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
CONSTANTS = {"METHODS", "METRICS", "SCORES", "__version__"}


@pytest.mark.parametrize("page", ["python.md", "commands.md", "evidence.md"])
def test_the_pages_are_what_the_code_says(page: str) -> None:
    made = runpy.run_path(str(ROOT / "tools" / "reference.py"))["PAGES"][page]()
    assert (REFERENCE / page).read_text() == made, "run `make reference`"


def test_every_public_name_is_in_the_reference() -> None:
    listed = (REFERENCE / "python.md").read_text().splitlines()
    missing = [name for name in rm.__all__ if name != "__version__" and f"::: remanence.{name}" not in listed]
    assert missing == []


def undocumented(name: str, thing: Any) -> Iterator[str]:
    """Names without a docstring of their own; the one that dataclasses make up does not count."""
    doc = thing.__doc__
    if not doc or doc.startswith(f"{name}("):
        yield name
    if inspect.isclass(thing):
        for method, function in vars(thing).items():
            function = getattr(function, "__func__", getattr(function, "fget", function))
            if inspect.isfunction(function) and not method.startswith("_") and not function.__doc__:
                yield f"{name}.{method}"


def test_every_public_name_is_explained() -> None:
    assert [
        each for name in set(rm.__all__) - CONSTANTS for each in undocumented(name, getattr(rm, name))
    ] == []


def test_the_check_of_names_can_fail() -> None:
    class Bare:
        def method(self) -> None: ...

    assert list(undocumented("Bare", Bare)) == ["Bare", "Bare.method"]


def commands(parent: App, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    for name in parent:
        if not name.startswith("-"):
            yield (*path, name), parent[name]
            yield from commands(parent[name], (*path, name))


def test_every_command_is_in_the_reference_and_explained() -> None:
    headings = {line.lstrip("# ") for line in (REFERENCE / "commands.md").read_text().splitlines()}
    found = dict(commands(app))
    assert ("study", "run") in found
    assert [" ".join(path) for path in found if f"remanence {' '.join(path)}" not in headings] == []
    assert [" ".join(path) for path, command in found.items() if not command.help] == []


def test_every_option_is_explained() -> None:
    silent = [
        f"{' '.join(path)} {argument.name}"
        for path, command in commands(app)
        if command.default_command is not None
        for argument in command.assemble_argument_collection(parse_docstring=True)
        if argument.show and not argument.parameter.help
    ]
    assert silent == []
