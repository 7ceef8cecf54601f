"""Serve the dashboard on this machine, to whoever has the address."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from remanence.errors import InputError
from remanence.requests import read_private_key
from remanence.storage import open_folder

LOOPBACK = "127.0.0.1"
_TRIES = 50
_SWITCH_SECONDS = 0.0005


def serve(
    runs: Sequence[Path],
    port: int,
    say: Callable[[str], None],
    *,
    store: Path | None = None,
    data_dir: Path | None = None,
    certificates: Sequence[Path] = (),
    key: Path | None = None,
) -> None:
    """Serve the dashboard until it is interrupted; a folder that is no run and a file that is no key are refused first.

    Args:
        runs: folders of runs.
        port: where to listen; the next free port if it is in use.
        say: called with every line of output, such as the address.
        store: folder with the artifacts of studies.
        data_dir: folder of the data sets of the studies.
        certificates: files that `remanence certify --json` printed.
        key: private key that signs the evidence of requests.
    """
    for run in runs:
        open_folder(run, "training")
    if key is not None:
        read_private_key(key)
    if store is not None and not store.is_dir():
        raise InputError(f"`store` must be a folder that `remanence study run` made; got {store}.")
    try:
        import uvicorn

        from remanence.web.app import make_app
        from remanence.web.certificate_pages import read_certificate
    except ImportError as error:
        raise InputError(
            f"The dashboard needs {error.name}, which is not installed: pip install 'remanence[web]'."
        ) from None
    for path in certificates:
        read_certificate(path)
    token = secrets.token_urlsafe(24)
    with free_socket(port) as listening:
        actual = listening.getsockname()[1]
        if actual != port:
            say(f"Port {port} is in use; using port {actual}.")
        say(f"http://{LOOPBACK}:{actual}/?token={token}")
        app = make_app(runs, token, store=store, data_dir=data_dir, key=key, certificates=certificates)
        threading.Thread(target=app.state.catalog.warm, daemon=True).start()
        # threads that make pages give way to the one that sends answers
        sys.setswitchinterval(_SWITCH_SECONDS)
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


def free_socket(port: int) -> socket.socket:
    """A socket bound to this port of the loopback interface, or to the next that is free."""
    if not 1 <= port <= 65535:
        raise InputError(f"`port` must be from 1 to 65535; got {port}.")
    last = min(port + _TRIES, 65536)
    for candidate in range(port, last):
        # named as TCP, or asyncio does not send small answers at once: 40 ms for every picture
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":  # a dashboard that was just ended does not keep its port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((LOOPBACK, candidate))
            bound.listen()  # two sockets may both bind where the system lets them; only one may listen
        except OSError as error:
            bound.close()
            if error.errno != errno.EADDRINUSE:
                raise InputError(f"Port {candidate} cannot be used: {error.strerror}.") from None
        else:
            return bound
    raise InputError(f"Ports {port} to {last - 1} are all in use; give another `port`.")
