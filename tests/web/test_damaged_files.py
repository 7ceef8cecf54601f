"""One damaged or forged file of one run: every page still answers, and the other runs are shown."""

import json
import math
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import remanence as rm
from remanence.certify import certify, load_problem
from remanence.data import digits
from remanence.storage.folder import SEAL, seal_in_place
from remanence.web.request_jobs import jobs_of_run

Visit = Callable[..., Any]
IDS = digits()[0].ids.tolist()
LISTS = ("/", "/requests", "/certificates", "/studies")
LOWEST_UMASK = 0


@pytest.fixture(scope="session")
def handled(calibrated: Path, made_once: Callable[..., Path], visit: Visit) -> Path:
    """A run with a finished request that the dashboard started under an open umask, a second run, a certificate."""

    def build(place: Path) -> None:
        for name in ("run", "other"):
            shutil.copytree(calibrated, place / name)
        browser, before = visit([place / "run"]), os.umask(LOWEST_UMASK)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(Path(rm.__file__).parents[1]))
            ids = "id\n" + "".join(f"{example}\n" for example in IDS[100:140])
            answer = browser.post("/runs/0/plan", file=("legal.csv", ids.encode()))
            browser.post(f"{answer.headers['location']}/start", asked_by="Legal")
            [job] = jobs_of_run(place / "run")
            deadline = time.monotonic() + 240
            while job.state == "running":
                assert time.monotonic() < deadline, job.last_output()
                time.sleep(0.1)
            assert job.state == "finished", job.last_output()
        os.umask(before)
        certificate = certify(load_problem("digits"), runs=2, steps=50, attack_models=0)
        (place / "certificate.json").write_text(json.dumps(certificate.document()))

    return made_once("handled", build)


@pytest.fixture
def folder(handled: Path, tmp_path: Path) -> Path:
    shutil.copytree(handled, tmp_path / "x")
    mark = tmp_path / "x" / "run" / ".request.json"
    document = json.loads(mark.read_text())
    [made] = (tmp_path / "x" / "run-requests").glob("*/run")
    mark.write_text(json.dumps(document | {"out": str(made)}))
    return tmp_path / "x"


FILES = (
    "run/.request.json",
    "run/remanence.json",
    "run/config.toml",
    "run/measurements.jsonl",
    "run/calibration/remanence.json",
    "run/calibration/config.toml",
    "run/calibration/facts.json",
    "run/calibration/trials.jsonl",
    "run-requests/*/request.json",
    "run-requests/*/progress.json",
    "run-requests/*/run/evidence.json",
    "run-requests/*/run/ledger.jsonl",
    "run-requests/*/run/ledger-ids.json",
    "run-requests/*/run/config.toml",
    "certificate.json",
)
TEXTS = ("", "[]", "{}", "null", "[" * 100_000, "\0", "9" * 5_000)
LEAVES = (None, "text", "\ud800", 10**400, math.nan, -1, [], {}, True)
FEW_LEAVES = (None, 10**400)


def damages(content: bytes, name: str) -> Iterator[bytes]:
    """Contents to put in place of a file's."""
    yield content[: len(content) // 2]
    yield content[:-3]
    yield content[: len(content) // 2] + b"\xff" + content[len(content) // 2 :]
    yield from (text.encode() for text in TEXTS)
    if name.endswith(".json"):
        document = json.loads(content)
        for leaf in LEAVES:
            yield json.dumps(replaced(document, leaf)).encode()
        for leaf in FEW_LEAVES:
            yield from (json.dumps(document | {key: leaf}).encode() for key in document)
    if name.endswith(".jsonl"):
        rows = [json.loads(line) for line in content.splitlines()]
        for leaf in LEAVES:
            yield "".join(json.dumps(replaced(row, leaf)) + "\n" for row in rows).encode()
        for leaf in FEW_LEAVES:
            for key in rows[0]:
                yield "".join(json.dumps(row | {key: leaf}) + "\n" for row in rows).encode()


def replaced(value: Any, leaf: Any) -> Any:
    """The same document with another value at every leaf."""
    if isinstance(value, dict):
        return {key: replaced(entry, leaf) for key, entry in value.items()}
    if isinstance(value, list):
        return [replaced(entry, leaf) for entry in value]
    return leaf


def reseal(file: Path) -> None:
    """Make the seal of the file's folder fit it, as a forger would."""
    seal = file.parent / SEAL
    if file.name != SEAL and seal.exists():
        body = json.loads(seal.read_text())
        if file.name in body["files"]:
            seal_in_place(file.parent, body["remanence"], body["files"])


@pytest.mark.sweep
@pytest.mark.parametrize("resealed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_hides_nothing_else(
    folder: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch, name: str, resealed: bool
) -> None:
    monkeypatch.setattr("remanence.web.page_rendering.drawn_png", lambda _: b"")  # slow, and not in question
    [file] = folder.glob(name)
    if resealed and (file.name == SEAL or not (file.parent / SEAL).exists()):
        pytest.skip("no seal covers it")
    seal = file.parent / SEAL
    content, sealed = file.read_bytes(), seal.read_bytes() if seal.exists() else b""
    [key] = [path.parent.name for path in folder.glob("run-requests/*/request.json")]
    pages = ["/runs/{}", "/runs/{}/plan", "/runs/{}/evidence"]
    for damaged in damages(content, name):
        file.write_bytes(damaged)
        if resealed:
            reseal(file)
        browser = visit([folder / "run", folder / "other"], certificates=[folder / "certificate.json"])
        for address in LISTS:
            answer = browser.get(address)
            assert answer.status_code == 200, (address, damaged[:200])
        assert str(folder / "other") in browser.get("/").text
        for address in [
            *(page.format(number) for page in pages for number in (0, 1, 2)),
            f"/runs/0/requests/{key}",
            f"/runs/0/requests/{key}/progress",
        ]:
            assert browser.get(address).status_code in (200, 400, 404), (address, damaged[:200])
        if damaged == b"{}":  # slow, and the same for all
            assert browser.get("/runs/0/examples").status_code in (200, 400, 404)
            assert browser.get("/runs/1/examples").status_code == 200
        if sealed:
            seal.write_bytes(sealed)
        file.write_bytes(content)


def test_damage_is_said_beside_its_run(folder: Path, visit: Visit) -> None:
    browser = visit([folder / "run", folder / "other"])
    assert "damaged" not in browser.get("/").text
    (folder / "run" / ".request.json").write_text("{}")
    assert ".request.json is damaged" in browser.get("/").text
    [note] = folder.glob("run-requests/*/request.json")
    note.write_text("{")
    page = browser.get("/requests").text
    assert f"Request {note.parent.name}" in page
    assert "request.json is damaged" in page
    assert browser.post(f"/runs/0/requests/{note.parent.name}/resume").status_code == 409


def test_what_the_dashboard_writes_is_private_under_any_umask(handled: Path) -> None:
    requests = handled / "run-requests"
    [note] = requests.glob("*/request.json")
    for folder in (requests, note.parent, note.parent / "ids"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    for file in (note, note.parent / "log.txt", note.parent / "ids" / "legal.csv"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
