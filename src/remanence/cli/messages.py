"""What the library says, in terms of the command line: arguments as options, and the command that continues."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from cyclopts import App

_CONTINUED: dict[str, tuple[str, ...]] = {
    "audit": ("shadows", "budget"),
    "barrier": ("out",),
    "calibrate": (),
    "demo": (),
    "forget": (),
    "purge": ("yes",),
    "study run": (),
}
"""Commands that continue when they are run again; some keep finished work only with one of these parameters."""


def in_options(sentence: str, app: App, arguments: Sequence[str]) -> str:
    """Replace every argument in backticks by the option of the running command; positional ones by their name."""
    options = _options(app, arguments)
    return re.sub(r"`(\w+)(?:=True)?`", lambda match: options.get(match[1], match[0]), sentence)


def continuation(app: App, arguments: Sequence[str]) -> str:
    """How to continue the command after an interruption; empty if it starts again from the beginning."""
    names, _, _ = app.parse_commands(arguments)
    _, bound, _, _ = app.parse_known_args(arguments)
    command, name = shlex.join(["remanence", *arguments]), " ".join(names)
    if "resume" in _options(app, arguments) and name not in _CONTINUED:
        command += "" if bound.arguments.get("resume") else " --resume"
        return f"To continue from the last checkpoint, run: {command}"
    keepers = _CONTINUED.get(name)
    if keepers is None or (keepers and all(bound.arguments.get(name) is None for name in keepers)):
        return ""
    return f"Finished work is kept. To continue, run the same command again: {command}"


def _options(app: App, arguments: Sequence[str]) -> dict[str, str]:
    """The parameters of the running command, and how they are written on the command line."""
    _, apps, _ = app.parse_commands(arguments)
    if apps[-1].default_command is None:
        return {}
    return {
        argument.field_info.name: argument.name
        for argument in apps[-1].assemble_argument_collection()
        if argument.show
    }
