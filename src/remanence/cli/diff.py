"""`remanence diff`."""

from __future__ import annotations

import sys
from pathlib import Path

from cyclopts import App

from remanence.cli import console
from remanence.cli.exit_codes import ExitCode
from remanence.cli.options import Json

app = App(name="diff")


@app.default
def diff(a: Path, b: Path, /, *, json: Json = False) -> None:
    """Compare two run folders bit by bit, and show where they differ. Exit code 1 when they do.

    For example:

    `remanence diff run-1 run-2`

    Parameters
    ----------
    a:
        First run folder.
    b:
        Second run folder.
    """
    from remanence.storage.compare import differences

    different = differences(a, b)
    if json:
        console.print_json({"identical": not different, "differences": different})
    elif not different:
        console.out.print("bit-identical")
    else:
        for name, difference in different.items():
            console.out.print(f"{name}: {difference}")
    if different:
        sys.exit(ExitCode.FAILED)
