"""A theorem names the test that checks it; that test must exist, and so must the page it refers to."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import remanence.certify
import remanence.theory

ROOT = Path(__file__).parents[3]
PARTS = ("Statement", "Symbols:", "Assumptions:", "Departs from the paper:", "Source:", "Checked by:")


def theorems():
    for package in (remanence.theory, remanence.certify):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            members = inspect.getmembers(importlib.import_module(module.name))
            for name, thing in members:
                own = getattr(thing, "__module__", None) == module.name
                if not own or not (inspect.isfunction(thing) or inspect.isclass(thing)):
                    continue
                yield f"{module.name}.{name}", thing.__doc__ or ""
                if inspect.isclass(thing):
                    methods = inspect.getmembers(thing, inspect.isfunction)
                    yield from ((f"{module.name}.{name}.{key}", each.__doc__ or "") for key, each in methods)


DOCSTRINGS = dict(theorems())
STATED = {name: text for name, text in DOCSTRINGS.items() if "Statement" in text}


def test_theorems_are_found():
    assert len(STATED) >= 14


@pytest.mark.parametrize("name", STATED)
def test_a_theorem_has_every_part(name):
    missing = [part for part in PARTS if part not in STATED[name]]
    assert not missing


@pytest.mark.parametrize("name", [name for name, text in DOCSTRINGS.items() if "Checked by:" in text])
def test_what_checks_a_theorem_exists(name):
    paths = re.findall(r"tests/[\w/]+\.py", DOCSTRINGS[name].split("Checked by:")[1])
    assert paths
    assert all((ROOT / path).is_file() for path in paths), paths


def test_pages_that_docstrings_name_exist():
    pages = {page for text in DOCSTRINGS.values() for page in re.findall(r"docs/[\w/-]+\.md", text)}
    assert pages
    assert all((ROOT / page).is_file() for page in pages), pages


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "theory").glob("*.md")), ids=lambda page: page.stem)
def test_paths_and_links_on_the_pages_exist(page):
    text = page.read_text()
    assert all((ROOT / path).is_file() for path in re.findall(r"`(tests/[\w/]+\.py)`", text))
    for target in re.findall(r"\]\(([\w-]+\.md)[#)]", text):
        assert (page.parent / target).is_file()
    if page.stem not in ("index", "errata"):
        assert "## Checked by" in text
        assert "depart from the paper" in text
