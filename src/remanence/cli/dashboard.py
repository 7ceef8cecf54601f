"""`remanence dashboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="dashboard")


@app.default
def dashboard(
    *runs: Path,
    store: Path | None = None,
    data_dir: Path | None = None,
    certificates: Annotated[list[Path] | None, Parameter(consume_multiple=True, negative="")] = None,
    key: Path | None = None,
    port: int = 8642,
) -> None:
    """Look at runs, plan and start deletion requests, watch studies, in a browser.

    Prints an address with a random token in it; open that. It is served to this machine only, and no page loads
    anything from elsewhere. Examples are sorted, filtered and brushed by their scores; a request is planned from pasted
    ids or a file, carried out by a process of its own into RUN-requests beside the run, and ends with its evidence.
    Needs the extra `web`.

    Example:

    `remanence dashboard run forgotten oracle1 --store store`

    Parameters
    ----------
    runs:
        Run folders.
    store:
        Of studies, whose stages and figures are to be shown.
    data_dir:
        Where the data of the studies lie, if not in $REMANENCE_DATA: their stages are told by it.
    certificates:
        Files that `remanence certify --json` printed.
    key:
        Ed25519 private key (PEM or OpenSSH) that signs the evidence of requests started here.
    port:
        Where to listen; the next free one when it is in use.
    """
    import os

    from remanence.web.serving import serve

    if data_dir is not None:
        os.environ["REMANENCE_DATA"] = str(data_dir.expanduser().resolve())
    serve(
        runs,
        port,
        lambda text: console.out.print(text, soft_wrap=True, markup=False, highlight=False),
        store=store,
        certificates=certificates or (),
        key=key,
    )
