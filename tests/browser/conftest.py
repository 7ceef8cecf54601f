"""A dashboard served by the real command over a calibrated run, and a page of a real Chromium that is watched."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import remanence as rm
from remanence.certify import certify, load_problem
from remanence.requests import CalibrationSettings, calibrate
from remanence.stages import Store
from remanence.study.catalog import load_study
from remanence.study.running import plan, run_planned
from remanence.training import RunSettings, train_run

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SOURCE = Path(rm.__file__).parents[1]
AXE = Path(os.environ.get("REMANENCE_AXE", ".venv/axe.min.js"))


@pytest.fixture(scope="session")
def driver() -> Any:
    """Playwright, where all that it takes is here; asked for before anything is made for it."""
    found = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: make test-browser"
    )
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine: make test-browser")
    if not AXE.is_file():
        pytest.skip(f"axe-core is not in {AXE}: make test-browser")
    return found


@pytest.fixture(scope="session")
def folder(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same calibrated run four times, since each visit changes its own; a study, and a certificate."""
    place = tmp_path_factory.mktemp("served")
    recipe = rm.Recipe(epochs=8, learning_rate=0.2, batch_size=64, weight_decay=1e-3)
    settings = RunSettings("digits", "mlp", recipe, record=12, model_options={"hidden": [64]})
    train_run(settings, place / "desk")
    options = {"learning_rate": 0.2, "weight_decay": 5e-3}
    chosen = CalibrationSettings(method="finetune", sets=40, models=20, budget=300, options=options)
    calibrate(rm.open_run(place / "desk"), chosen, workers=1)
    for name in ("phone", "plain", "keys"):
        shutil.copytree(place / "desk", place / name)
    run_planned([plan(load_study("proxies", "smoke", ["train.epochs=2", "seeds=1"]))], Store(place / "store"))
    found = certify(load_problem("digits"), runs=2, steps=50, attack_models=0)
    (place / "certificate.json").write_text(json.dumps(found.document()))
    return place


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[str]:
    """Where the dashboard is, with its token."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "remanence", "dashboard", "desk", "phone", "plain", "keys"]
    command += ["--store", "store", "--certificates", "certificate.json", "--port", "18642"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = ""
        while not (found := re.search(r"http://\S+", said)):
            line = server.stdout.readline()
            assert line, f"the dashboard ended: {said}"
            said += line
        yield found[0]
        server.terminate()


@dataclass
class Visit:
    """A page, and what must not happen on it."""

    page: Any
    home: str
    width: int
    console: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def check(self) -> None:
        """The page as it stands: no wider than the window, and nothing serious that axe-core finds."""
        assert int(self.page.evaluate("document.documentElement.scrollWidth")) <= self.width, self.page.url
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [
            (each["id"], [node["html"] for node in each["nodes"]])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], self.page.url
        assert len(found["passes"]) > 0

    def shoot(self, name: str) -> None:
        """Take a picture, to be looked at and for the documentation, where that is wanted."""
        if wanted := os.environ.get("REMANENCE_SCREENSHOTS"):
            self.page.screenshot(path=Path(wanted) / f"{name}.png")


@pytest.fixture
def open_page(driver: Any, address: str) -> Iterator[Callable[..., Visit]]:
    """Open the dashboard in a new Chromium."""
    home = address.split("?", maxsplit=1)[0]
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        def start(width: int, scheme: str, **options: Any) -> Visit:
            context = browser.new_context(
                viewport={"width": width, "height": 800}, color_scheme=scheme, **options
            )
            visit = Visit(context.new_page(), home, width)
            visit.page.on("console", lambda message: visit.console.append(message.text))
            visit.page.on("pageerror", lambda error: visit.console.append(str(error)))
            visit.page.on(
                "request",
                lambda asked: (
                    None if asked.url.startswith((home, "data:")) else visit.outside.append(asked.url)
                ),
            )
            visit.page.goto(address)
            visit.page.wait_for_url(
                lambda url: "token" not in url
            )  # the page with the token leads on by itself
            return visit

        yield start
        browser.close()
