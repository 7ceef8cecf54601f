"""A browser that asks one dashboard, with cookies, without a server; and a calibrated run."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import remanence as rm
from remanence.requests import CalibrationSettings, calibrate
from remanence.training import RunSettings, train_run
from remanence.web.app import make_app

TOKEN = "a-token-of-the-test"


class Browser:
    """Asks as a browser does."""

    def __init__(
        self,
        runs: list[Path],
        cookie: bool = True,
        host: str = "127.0.0.1",
        origin: str | None = None,
        app: Any = None,
        faults_end_the_test: bool = True,
        **options: Any,
    ) -> None:
        self.app = app or make_app(runs, TOKEN, **options)
        self._raises = faults_end_the_test
        self._base = f"http://{host}:8642"
        self._origin = self._base if origin is None else origin
        self._cookies = httpx.Cookies()
        if cookie:
            self._cookies.update(self.get(f"/?token={TOKEN}").cookies)

    def get(self, address: str, follow: bool = False) -> httpx.Response:
        return self._ask("GET", address, follow_redirects=follow)

    def post(self, address: str, **form: Any) -> httpx.Response:
        """Send a form; a value that is a tuple is a file: its name and content."""
        files = {
            name: value if isinstance(value, tuple) else (None, value.encode())
            for name, value in (form or {"nothing": ""}).items()
        }
        return self._ask(
            "POST", address, files=files, headers={"origin": self._origin} if self._origin else {}
        )

    def send(self, address: str, **how: Any) -> httpx.Response:
        """Send anything."""
        return self._ask("POST", address, **({"headers": {}} | how))

    def _ask(self, method: str, address: str, **how: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=self._raises)
            async with httpx.AsyncClient(
                transport=transport, base_url=self._base, cookies=self._cookies, timeout=60
            ) as client:
                return await client.request(method, address, **how)

        return asyncio.run(ask())


@pytest.fixture(scope="session")
def visit() -> Callable[..., Browser]:
    return Browser


@pytest.fixture(scope="session")
def calibrated(made_once: Callable[..., Path]) -> Path:
    """A small run on digits that requests can be planned on."""

    def build(place: Path) -> None:
        recipe = rm.Recipe(epochs=4, learning_rate=0.2, batch_size=64, weight_decay=1e-3)
        settings = RunSettings(
            "digits", "mlp", recipe, record=4, placement="even", model_options={"hidden": [32]}
        )
        train_run(settings, place / "run")
        wanted = CalibrationSettings(method="finetune", sets=20, models=20, budget=80)
        calibrate(rm.open_run(place / "run"), wanted, workers=1)

    return made_once("calibrated", build) / "run"


@pytest.fixture
def run(calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of its own for every test, and processes that run this very code."""
    monkeypatch.setenv("PYTHONPATH", str(Path(rm.__file__).parents[1]))
    shutil.copytree(calibrated, tmp_path / "run")
    return tmp_path / "run"
