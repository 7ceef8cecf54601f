"""Write the reference pages of the documentation from the code; `make reference` runs it, a test compares.

The pages are kept in the repository, so that they can be read there and a change of the interface shows in a diff.
"""

from __future__ import annotations

import sys
from pathlib import Path

import remanence
from remanence.cli.main import app

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
_MADE = "<!-- made by `make reference`: change the docstrings, not this page -->"
_ROOMS = {
    "runs": "Runs",
    "tasks": "Tasks",
    "data": "Data",
    "training": "Training and recording",
    "gradients": "Per-example gradient norms",
    "types": "Results",
    "scores": "Scores",
    "forgetting": "Forget sets",
    "unlearning": "Unlearning methods",
    "experiments": "Unlearning and tuning",
    "audit": "Audits",
    "requests": "Deletion requests",
    "errors": "Errors",
}


def python_page() -> str:
    """Every public name, room by room, and the modules `theory` and `errors`."""
    names: dict[str, list[str]] = {}
    for name, module in remanence._MODULE_OF.items():
        names.setdefault(_ROOMS[module.split(".")[1]], []).append(name)
    parts = ["# Python", _MADE, "The idiomatic import is `import remanence as rm`."]
    for title in (title for title in _ROOMS.values() if title in names):
        parts += [f"## {title}", *(_entry(name) for name in sorted(names[title], key=str.lower))]
    for module in remanence._MODULES:
        parts += [f"## rm.{module}", _entry(module)]
    return "\n\n".join(parts) + "\n"


def _entry(name: str) -> str:
    return f"::: remanence.{name}\n    options:\n      heading_level: 3"


def commands_page() -> str:
    """Every command with its arguments and options."""
    started = sys.argv
    sys.argv = ["remanence"]  # where usage lines take the program's name from
    try:
        made = app.generate_docs()
    finally:
        sys.argv = started
    made = made.replace("# remanence\n", f"# Commands\n\n{_MADE}\n", 1)
    return "\n".join(line.rstrip() for line in made.splitlines()).strip() + "\n"


PAGES = {"python.md": python_page, "commands.md": commands_page}

if __name__ == "__main__":
    for file, page in PAGES.items():
        (FOLDER / file).write_text(page(), encoding="utf-8")
