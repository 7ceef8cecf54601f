"""The address with the token works after a click in a page of another site, although the cookie is strict."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import remanence as rm

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")


@pytest.fixture
def address() -> Iterator[str]:
    """A dashboard without runs: its address with the token."""
    environment = os.environ | {"PYTHONPATH": str(Path(rm.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "remanence", "dashboard", "--port", "18742"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = ""
        while not (match := re.search(r"http://\S+", said)):
            line = server.stdout.readline()
            assert line, f"the dashboard ended: {said}"
            said += line
        yield match[0]
        server.terminate()


def page_after_click(address: str, profile: Path) -> str:
    """The page that Chromium shows after a link to the address was clicked in a page of another site."""

    class Notebook(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            link = f'<a id=a href="{address}">open</a><script>document.getElementById("a").click()</script>'
            self.wfile.write(link.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Notebook) as notebook:
        threading.Thread(target=notebook.serve_forever, daemon=True).start()
        # to a browser, localhost and 127.0.0.1 are two sites
        start = f"http://localhost:{notebook.server_address[1]}/"
        command = [
            str(CHROMIUM),
            *FLAGS,
            f"--user-data-dir={profile}",
            "--virtual-time-budget=8000",
            "--dump-dom",
            start,
        ]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        notebook.shutdown()
    return shown


def test_the_token_is_exchanged_after_a_click_in_another_site(address: str, tmp_path: Path) -> None:
    shown = page_after_click(address, tmp_path / "profile")
    assert "No runs yet" in shown
    assert "token=" not in shown
