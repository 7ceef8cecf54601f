"""`remanence trust`."""

from __future__ import annotations

import sys
from pathlib import Path

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import Flag, Json

app = App(name="trust")


@app.default
def trust(run: Path, /, *, yes: Flag = False, json: Json = False) -> None:
    """Allow the code that a run folder names to be executed.

    A run may name its model or its task by an import path, package.module:function. If the folder comes from somebody
    else, that is code which would be executed; Remanence refuses to until you have seen it here and confirmed. This is
    recorded in your configuration folder, with the digest of the run: if the folder is changed or moved, it is no
    longer trusted.
    Runs that you train yourself are trusted already.

    For example:

    `remanence trust received-run`

    `remanence trust received-run --yes`

    Parameters
    ----------
    run:
        A run whose model or task is named by an import path.
    yes:
        Trust the run without asking.
    """
    from remanence.errors import InputError
    from remanence.training import open_run
    from remanence.training.trust import is_trusted, module_file
    from remanence.training.trust import trust as trust_folder

    opened = open_run(run)
    opened.folder.verify()
    code, options = opened.settings.code, dict(opened.settings.model_options)
    file = module_file(code) if code else None
    if not code:
        sentence = f"{run} needs no trust: its model is {opened.settings.model}, which is part of Remanence."
    elif is_trusted(opened.folder):
        sentence = f"{run} is trusted already."
    else:
        called = "" if opened.settings.task else f", called with {options}"
        console.note(f"The {'task' if opened.settings.task else 'model'} of {run} is {code!r}{called}.")
        console.note(f"The file of the module is {file or 'not found on this machine'}.")
        if not yes and not _confirmed():
            raise InputError(f"{run} was not trusted; add --yes to trust it.")
        trust_folder(opened.folder)
        sentence = f"{run} is trusted as it is now."
    if json:
        console.print_json(
            {
                "run": str(run),
                "model": code or opened.settings.model,
                "file": file,
                "digest": opened.folder.digest(),
                "trusted": True,
            }
        )
    else:
        console.out.print(sentence, soft_wrap=True, markup=False)


def _confirmed() -> bool:
    if not (sys.stdin.isatty() and console.err.is_terminal):
        return False
    return console.err.input(
        "Execute this code whenever the run is opened? [y/N] ", markup=False
    ).strip() in (
        "y",
        "yes",
    )
