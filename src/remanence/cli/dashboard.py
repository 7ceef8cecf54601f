"""`remanence dashboard`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from remanence.cli import console

app = App(name="dashboard")


@app.default
def dashboard(*runs: Path, port: int = 8642) -> None:
    """Look at runs and their examples in a browser.

    Prints an address with a random token in it; open that. It is served to this machine only, and no page loads
    anything from elsewhere. Runs show settings, measurements and provenance; examples can be sorted and filtered by
    score, class and percentile, and each has its history over the checkpoints. Needs the extra `web`.

    Example:

    `remanence dashboard run forgotten oracle1`

    Parameters
    ----------
    runs:
        Run folders.
    port:
        Where to listen; the next free one when it is in use.
    """
    from remanence.web.serving import serve

    serve(runs, port, lambda text: console.out.print(text, soft_wrap=True, markup=False, highlight=False))
