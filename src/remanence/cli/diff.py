"""`remanence diff`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="diff")


@app.default
def diff(a: Path, b: Path, /, *, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Say whether two run folders hold the same bits, and if not, where they differ. Exit code 1 when they do.

    Example:

    `remanence diff run-1 run-2`

    Parameters
    ----------
    a:
        A run folder.
    b:
        Another.
    json:
        Print the outcome as one JSON document.
    """
    from remanence.storage.compare import differences

    found = differences(a, b)
    if json:
        console.print_json({"identical": not found, "differences": found})
    elif not found:
        console.out.print("bit-identical")
    else:
        for name, what in found.items():
            console.out.print(f"{name}: {what}")
    if found:
        sys.exit(1)
