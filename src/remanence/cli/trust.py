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

    A run may name its model by an import path, package.module:function. If the folder comes from somebody else, that
    is code which would be executed; Remanence refuses to until you have seen it here and confirmed. This is recorded in
    your configuration folder, with the digest of the run: if the folder is changed or moved, it is no longer trusted.
    Runs that you train yourself are trusted already.

    For example:

    `remanence trust received-run`

    `remanence trust received-run --yes`

    Parameters
    ----------
    run:
        A run whose model is named by an import path.
    yes:
        Trust the run without asking.
    """
    from remanence.errors import InputError
    from remanence.models import is_import_path
    from remanence.training import open_run
    from remanence.training.trust import is_trusted, module_file
    from remanence.training.trust import trust as trust_folder

    opened = open_run(run)
    opened.folder.verify()
    model, options = opened.settings.model, dict(opened.settings.model_options)
    needed, file = is_import_path(model), module_file(model) if is_import_path(model) else None
    if not needed:
        sentence = f"{run} needs no trust: its model is {model}, which is part of Remanence."
    elif is_trusted(opened.folder):
        sentence = f"{run} is trusted already."
    else:
        console.note(f"The model of {run} is {model!r}, called with {options}.")
        console.note(f"The file of the module is {file or 'not found on this machine'}.")
        if not yes and not _confirmed():
            raise InputError(f"{run} was not trusted; add --yes to trust it.")
        trust_folder(opened.folder)
        sentence = f"{run} is trusted as it is now."
    if json:
        console.print_json(
            {"run": str(run), "model": model, "file": file, "digest": opened.folder.digest(), "trusted": True}
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
