"""The dashboard in a real browser, as wide as a desk and as a phone; `make test-browser` installs what it takes."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import remanence as rm
from remanence.training.run import RunSettings, train_run

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: make test-browser"
)
CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SOURCE = Path(rm.__file__).parents[1]

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium on this machine: make test-browser"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard over one run, served by the real command."""
    folder = tmp_path_factory.mktemp("served")
    recipe = rm.Recipe(epochs=4, learning_rate=0.1)
    train_run(RunSettings("digits", "mlp", recipe, record=8), folder / "run")
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "remanence", "dashboard", "run", "--port", "18642"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = ""
        while not (found := re.search(r"http://\S+", said)):
            line = server.stdout.readline()
            assert line, f"the dashboard ended: {said}"
            said += line
        yield found[0]
        server.terminate()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_visit(address: str, width: int, scheme: str) -> None:
    home = address.split("?", maxsplit=1)[0]
    errors: list[str] = []
    outside: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: None if inside(request.url, home) else outside.append(request.url))
        page.goto(address)
        assert "token" not in page.url
        page.get_by_role("link", name="run", exact=True).click()
        page.get_by_role("link", name="Look at its examples").click()
        page.get_by_label("Class").select_option("8")
        page.get_by_label("Percentile from").fill("50")
        page.get_by_role("button", name="Show").click()
        assert page.locator(".gallery li").count() == 48
        page.wait_for_function(
            "[...document.querySelectorAll('.gallery img')].slice(0, 4).every(i => i.naturalWidth)"
        )
        assert no_wider_than(page, width)
        if (folder := os.environ.get("REMANENCE_SCREENSHOTS")) and width == 1280:
            page.goto(home + "runs/0/examples", wait_until="networkidle")
            page.screenshot(path=Path(folder) / "dashboard.png")
        page.locator(".gallery a").first.click()
        assert page.get_by_role("heading", name="History").is_visible()
        assert no_wider_than(page, width)
        browser.close()
    assert errors == []
    assert outside == []


def inside(url: str, home: str) -> bool:
    return url.startswith((home, "data:"))


def no_wider_than(page: "playwright.Page", width: int) -> bool:
    return int(page.evaluate("document.documentElement.scrollWidth")) <= width
