"""`remanence dashboard`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import DataDir, Paths, SigningKey

app = App(name="dashboard")


@app.default
def dashboard(
    *runs: Path,
    store: Path | None = None,
    data_dir: DataDir = None,
    certificates: Paths = None,
    key: SigningKey = None,
    port: int = 8642,
) -> None:
    """Look at runs, plan and start deletion requests, and watch studies in a browser.

    Prints an address with a random token; open it in a browser. The dashboard is served to this machine only, and no
    page loads anything from elsewhere. Examples are sorted, filtered and selected by their scores. A request is planned
    from pasted ids or a file, is carried out by a separate process into RUN-requests beside the run, and ends with its
    evidence. Needs the extra `web`.

    For example:

    `remanence dashboard run forgotten oracle1 --store store`

    Parameters
    ----------
    runs:
        Folders of runs.
    store:
        Folder with the artifacts of studies, whose stages and figures are shown.
    certificates:
        Files that `remanence certify --json` printed.
    port:
        Port to listen on; the next free port if it is in use.
    """
    from remanence.web.server import serve

    serve(
        runs,
        port,
        lambda text: console.out.print(text, soft_wrap=True, markup=False, highlight=False),
        store=store,
        data_dir=data_dir,
        certificates=certificates or (),
        key=key,
    )
