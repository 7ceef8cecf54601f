"""Write the reference pages of the documentation from the code; `make reference` runs it, a test compares.

The pages are kept in the repository, so that they can be read there and a change of the interface shows in a diff.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import remanence
from remanence.cli.exit_codes import ExitCode
from remanence.cli.main import app
from remanence.requests.attestation import PREDICATE_TYPE, SCHEMA, schema

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
    "memory": "Speed",
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
    commands = "\n".join(line.rstrip() for line in made.splitlines()).strip()
    return f"{commands}\n\n{_exit_codes()}\n"


def _exit_codes() -> str:
    """The one table of exit codes."""
    rows = [f"| {code:d} | {code.meaning} |" for code in ExitCode]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---|---|", *rows])


def evidence_page() -> str:
    """The JSON schema of the evidence: what each entry of its predicate means, and the schema itself."""
    content = schema()
    rows = [
        f"| `{name}` | {'; '.join(_kinds(entry))} | {_described(entry)} |"
        for name, entry in content["properties"].items()
    ]
    parts = [
        "# Form of the evidence",
        _MADE,
        f"{content['description']} The predicate type is `{PREDICATE_TYPE}`; how the document is signed is in "
        "[evidence](../how-to/evidence.md#the-format).",
        "\n".join(["| entry | type | meaning |", "|---|---|---|", *rows]),
        "## JSON schema",
        f"It is also in the package, `remanence/requests/{SCHEMA}`.",
        f"```json\n{json.dumps(content, indent=2, ensure_ascii=False)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _kinds(entry: dict[str, Any]) -> list[str]:
    if "oneOf" in entry:
        return [kind for choice in entry["oneOf"] for kind in _kinds(choice)]
    if "$ref" in entry:
        return ["string"]
    kinds = entry.get("type", "string")
    return kinds if isinstance(kinds, list) else [kinds]


def _described(entry: dict[str, Any]) -> str:
    if "enum" in entry:
        return "One of: " + ", ".join(f"*{value}*" for value in entry["enum"]) + "."
    inside = entry.get("properties", {})
    text = str(entry.get("description", ""))
    return text or "Has " + ", ".join(f"`{name}`" for name in inside) + "."


PAGES = {"python.md": python_page, "commands.md": commands_page, "evidence.md": evidence_page}

if __name__ == "__main__":
    for file, page in PAGES.items():
        (FOLDER / file).write_text(page(), encoding="utf-8")
