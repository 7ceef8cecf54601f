"""Requests in the dashboard: started, watched, stopped, resumed, given up, finished, shown."""

import hashlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remanence.cli.exit_codes import exit_code_of
from remanence.cli.main import run as command
from remanence.data import digits
from remanence.requests import list_remaining_artifacts, read_evidence
from remanence.requests.outcome import Outcome
from remanence.requests.request_ledger import read_ledger
from remanence.requests.signing import hash_ids
from remanence.storage import SEAL
from remanence.training import open_run
from remanence.web.request_jobs import Job, jobs_of_run

IDS = digits()[0].ids.tolist()
Visit = Callable[..., Any]


def planned(browser: Any, ids: list[int], number: int = 0, file: str = "legal-7.csv") -> str:
    """Plan it; the plan's address."""
    head = "id\n" if file.endswith(".csv") else ""
    content = (head + "".join(f"{each}\n" for each in ids)).encode()
    answer = browser.post(f"/runs/{number}/plan", file=(file, content))
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def begun(job: Job) -> None:
    """Wait until a request's new run is under way."""
    deadline = time.monotonic() + 120
    while not (job.out / "unfinished.toml").exists():
        assert job.state == "running", job.last_output()
        assert time.monotonic() < deadline, job.last_output()
        time.sleep(0.002)


def ended(run: Path) -> Job:
    """Wait for the only request on a run to end, however."""
    [job] = jobs_of_run(run)
    deadline = time.monotonic() + 120
    while job.state == "running":
        assert time.monotonic() < deadline, job.last_output()
        time.sleep(0.1)
    return job


def test_a_request_from_its_plan_to_its_evidence(run: Path, visit: Visit) -> None:
    browser = visit([run])
    assert "No requests yet" in browser.get("/requests").text
    place = planned(browser, IDS[100:140])
    answer = browser.post(f"{place}/start", asked_by="  Legal,\n<b>Ms Doe\0</b>  ")
    assert answer.status_code == 303
    request = answer.headers["location"]
    assert "hx-get" in browser.get(request).text  # it is watched
    job = ended(run)
    assert job.state == "finished", job.last_output()
    assert job.out.parent.parent == run.parent / "run-requests"
    page = browser.get(request).text
    assert "hx-get" not in page
    assert "Legal, &lt;b&gt;Ms Doe&lt;/b&gt;" in page
    made = re.search(r"/runs/(\d+)/evidence", page)
    assert made is not None
    number = int(made[1])
    check_evidence(browser, number, job)
    assert "Measurements over steps" in browser.get(f"/runs/{number}").text
    for address in (
        "/",
        "/requests",
        "/certificates",
        f"/runs/{number}",
        f"/runs/{number}/examples",
        f"/runs/{number}/plan",
    ):
        assert browser.get(address).status_code == 200, address
    outcome = read_evidence(job.out / "evidence.json")["outcome"]
    shown = (
        "finished" if outcome in ("forgotten", "retrained") else outcome
    )  # what is not settled says so instead
    assert f'">{shown}</span>' in browser.get("/requests").text
    check_nothing_starts_twice(browser, place, request, outcome)
    artifacts = list_remaining_artifacts(open_run(job.out), erase=[run])
    erased = {artifact.path.name for artifact in artifacts if artifact.erasable}
    assert "weights.safetensors" in erased  # of the earlier model, which is not beside the new one


def check_evidence(browser: Any, number: int, job: Job) -> None:
    evidence = browser.get(f"/runs/{number}/evidence").text
    assert "✗" not in evidence
    assert evidence.count("✓") >= 8
    document = browser.get(f"/runs/{number}/evidence.html")
    assert document.content == (job.out / "evidence.html").read_bytes()
    assert "sandbox" in document.headers["content-security-policy"]
    assert "script-src" not in document.headers["content-security-policy"]
    told = browser.get(f"/runs/{number}/evidence.json").json()["predicate"]
    sent = "id\n" + "".join(f"{each}\n" for each in IDS[100:140])
    (row,) = read_ledger(open_run(job.out))
    keyed = hash_ids([hashlib.sha256(sent.encode()).hexdigest()], row["salt"])
    assert [told["request"]["list_hmac"]] == keyed, "nobody without the ledger can test a guess of the list"
    assert "legal-7" not in json.dumps(told), "the name of the list is nowhere in the evidence"
    assert "legal-7" not in document.text
    assert told["request"]["asked_by"] == "Legal, <b>Ms Doe</b>"
    weights = job.out / "weights.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    tampered = browser.get(f"/runs/{number}/evidence").text
    assert "weights.safetensors is the file that the evidence is about: NOT true" in tampered
    weights.write_bytes(content)


def check_nothing_starts_twice(browser: Any, place: str, request: str, outcome: str) -> None:
    again = browser.post(f"{place}/start")
    assert again.status_code == 409
    assert "already been carried out" in again.text
    assert f'href="{request}"' in again.text
    other = browser.post(f"{planned(browser, IDS[200:230])}/start")
    assert other.status_code == 409
    expected = "was not forgotten; it is in" if outcome == "not forgotten" else "is continued in"
    assert expected in other.text
    assert "Look at the requests" in other.text  # it has no page of its own
    for action in ("stop", "resume", "discard"):
        assert browser.post(f"{request}/{action}").status_code == 409


def test_two_browsers_start_the_same_request(run: Path, visit: Visit) -> None:
    first = visit([run])
    second = visit([run], app=first.app)
    place = planned(first, IDS[100:140])
    codes: list[int] = []
    both = [
        threading.Thread(target=lambda each=each: codes.append(each.post(f"{place}/start").status_code))
        for each in (first, second)
    ]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert sorted(codes) == [303, 409]
    elsewhere = visit([run])  # a dashboard of its own over the same run
    refused = elsewhere.post(f"{planned(elsewhere, IDS[100:140])}/start")
    assert refused.status_code == 409
    assert "already running" in refused.text
    other = elsewhere.post(f"{planned(elsewhere, IDS[200:230])}/start")
    assert other.status_code == 409  # even before the first has said on disk that it is under way
    assert "Another request" in other.text
    assert ended(run).state == "finished"
    assert len(jobs_of_run(run)) == 1


def test_stopped_resumed_and_the_same(run: Path, visit: Visit) -> None:
    browser = visit([run])
    before = {
        path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name[0] != "."
    }
    start = f"{planned(browser, IDS[100:140])}/start"
    request = browser.post(start, oracle="yes").headers["location"]
    [job] = jobs_of_run(run)
    while job.progress is None and job.state == "running":
        time.sleep(0.01)
    assert "Step " in browser.get(f"{request}/progress").text
    answer = browser.post(f"{request}/stop")  # in the midst of it; the oracle is still to be trained
    assert answer.status_code == 303
    ended(run)
    assert job.state == "stopped"
    assert {name: (run / name).read_bytes() for name in before} == before
    page = browser.get(request).text
    assert "Resume" in page
    assert "Finished work is kept" in " ".join(page.split())
    assert "Traceback" not in page
    assert "stopped" in browser.get("/requests").text
    assert browser.post(f"{request}/stop").status_code == 409
    again = browser.post(f"{planned(browser, IDS[100:140], file='other.txt')}/start")
    assert (again.status_code, "resume or discard it" in again.text) == (
        409,
        True,
    )  # not begun anew from another list
    assert f'href="{request}"' in again.text
    assert browser.post(f"{request}/resume").status_code == 303
    assert ended(run).state == "finished"
    assert (job.out / SEAL).exists()


def test_given_up_makes_room_for_another(run: Path, visit: Visit) -> None:
    browser = visit([run])
    place = planned(browser, IDS[100:140], file="log.txt")  # a name that we use ourselves
    request = browser.post(f"{place}/start").headers["location"]
    browser.post(f"{request}/stop")
    job = ended(run)
    assert (job.folder / "ids" / "log.txt").read_text().split() == [str(each) for each in IDS[100:140]]
    assert browser.post(f"{request}/discard").headers["location"] == "/requests"
    assert not job.folder.exists()
    assert browser.get(request).status_code == 404
    assert browser.post(f"{planned(browser, IDS[200:230])}/start").status_code == 303
    assert ended(run).state == "finished"


def test_a_process_that_was_killed_has_stopped(run: Path, visit: Visit) -> None:
    browser = visit([run])
    request = browser.post(f"{planned(browser, IDS[100:140])}/start").headers["location"]
    [job] = jobs_of_run(run)
    begun(job)
    os.kill(int(job.note["process"]), signal.SIGKILL)
    assert ended(run).state == "stopped"
    assert not (job.out / SEAL).exists(), "the kill must meet unfinished work"
    assert "Resume" in visit([run]).get(request).text  # in a dashboard that was started since
    moved = run.parent / "elsewhere"
    moved.mkdir()
    for each in (run, job.folder.parent):
        each.rename(moved / each.name)
    assert visit([moved / "run"]).post(f"{request}/resume").status_code == 303
    assert ended(moved / "run").state == "finished"
    assert not run.exists()


def test_a_request_of_the_command_line_is_shown(run: Path, visit: Visit, tmp_path: Path) -> None:
    ids = tmp_path / "asked.csv"
    ids.write_text("id\n" + "".join(f"{each}\n" for each in IDS[300:330]))
    out = ["--out", str(tmp_path / "new"), "--progress", str(tmp_path / "p.json"), "--json"]
    code = command(["forget", str(run), "--ids", str(ids), *out])
    assert code == exit_code_of(Outcome(read_evidence(tmp_path / "new" / "evidence.json")["outcome"]))
    found = json.loads((tmp_path / "p.json").read_text())
    assert 0 < found["done"] <= found["total"] == 80
    browser = visit([run])  # the new run is found from the old one
    page = browser.get("/requests").text
    assert read_evidence(tmp_path / "new" / "evidence.json")["request"]["reference"] in page
    assert "/runs/1/evidence" in page
    assert browser.get("/runs/1/evidence").status_code == 200
    refused = browser.post(f"{planned(browser, IDS[100:140])}/start")
    assert refused.status_code == 409
    evidence = tmp_path / "new" / "evidence.json"
    statement = json.loads(evidence.read_text())
    told = statement["predicate"]
    evidence.write_text(json.dumps(statement | {"predicate": told | {"outcome": "not forgotten"}}))
    assert "not forgotten" in browser.get("/requests").text
    shown = browser.get("/runs/1/evidence").text
    assert "<title>Evidence: not forgotten" in shown
    assert "Outcome: not forgotten" in shown
    foreign = {"scheme": "ed25519", "public_key": "zz"}
    signed = {"scheme": "ed25519", "public_key": "00" * 32}
    changes = (
        {"model": {}},
        {"signer": foreign},
        {"signer": signed},
        {"actual": {"reached": True}},
        {"made": 7},
    )
    for changed in changes:
        evidence.write_text(json.dumps(statement | {"predicate": told | changed}))
        answer = browser.get("/runs/1/evidence")
        assert (answer.status_code, "damaged" in answer.text or "replaced" in answer.text) == (
            400,
            True,
        ), changed
        assert browser.get("/requests").status_code == 200
    del told["signer"]
    for damaged in (json.dumps(statement), json.dumps(told), "[" * 100_000, "{}"):
        evidence.write_text(damaged)
        assert "evidence that cannot be read" in browser.get("/requests").text
        answer = browser.get("/runs/1/evidence")
        assert answer.status_code == 400
        assert "evidence.json" in answer.text


def test_signed_with_the_dashboards_key(run: Path, visit: Visit, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    browser = visit([run], key=tmp_path / "key.pem")
    browser.post(f"{planned(browser, IDS[100:130])}/start", oracle="yes")
    job = ended(run)
    assert job.state == "finished", job.last_output()
    told = read_evidence(job.out / "evidence.json")
    assert told["signer"]["public_key"] == key.public_key().public_bytes_raw().hex()
    assert all(row["oracle"] is not None for row in told["audit"] if row["metric"] == "ua")
    assert json.loads((job.folder / "progress.json").read_text())["phase"] == "retraining"
    assert "Signed with the key" in browser.get("/runs/1/evidence").text


@pytest.mark.parametrize(
    "address",
    [
        "/runs/0/requests/nothing",
        "/runs/0/requests/..%2f..%2frun",
        "/runs/0/requests/%2e%2e",
        "/runs/7/requests/x",
        "/runs/0/evidence",
        "/runs/0/evidence.html",
        "/runs/0/requests/nothing/progress",
    ],
)
def test_requests_that_are_not_there(run: Path, visit: Visit, address: str) -> None:
    answer = visit([run]).get(address)
    assert answer.status_code == 404
    assert "<h1>" in answer.text


@pytest.mark.parametrize("action", ["stop", "resume", "discard", "erase"])
def test_nothing_is_done_to_requests_that_are_not_there(run: Path, visit: Visit, action: str) -> None:
    assert visit([run]).post(f"/runs/0/requests/x/{action}").status_code == 404
