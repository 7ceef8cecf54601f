"""Verdicts of real requests, and several requests in one unlearning: each has its own evidence and its own verdict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from remanence.cli.main import run as command
from remanence.data import digits
from remanence.errors import InputError, RunFolderError
from remanence.requests import (
    CalibrationSettings,
    ForgetOptions,
    Outcome,
    Request,
    calibrate,
    forget,
    make_request,
    purge,
    read_evidence,
    verify_evidence,
)
from remanence.requests.criterion import Criterion
from remanence.requests.request import together
from remanence.requests.request_ledger import is_batch, read_ledger
from remanence.runs import open_run as open_public_run
from remanence.storage import SEAL
from remanence.training import Recipe, Run, RunSettings, open_run, train_run
from remanence.types import ForgetSet

pytestmark = pytest.mark.journey

IDS = digits()[0].ids
QUICK = Recipe(epochs=4, learning_rate=0.2, batch_size=64, weight_decay=1e-3)
PLAIN = ForgetOptions(relearning=False)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("queue") / "run"
    train_run(RunSettings("digits", "mlp", QUICK, record=4, model_options={"hidden": [32]}), out)
    calibrate(open_run(out), CalibrationSettings(method="finetune", sets=20, models=20, budget=40), workers=1)
    return out


@pytest.fixture
def run(calibrated: Path, tmp_path: Path) -> Path:
    shutil.copytree(calibrated, tmp_path / "run")
    return tmp_path / "run"


def request(run: Run, first: int, last: int) -> Request:
    return make_request(ForgetSet(f"{first} to {last}", IDS[first:last]), run)


def listed(path: Path, first: int, last: int) -> Path:
    path.write_text("id\n" + "".join(f"{example}\n" for example in IDS[first:last]))
    return path


def test_the_verdict_reads_what_did_not_decide_when_to_stop(run: Path, tmp_path: Path) -> None:
    opened = open_run(run)
    result = forget(opened, request(opened, 100, 160), tmp_path / "new", PLAIN)
    actual = result.evidence["actual"]
    verdict, criterion = actual["verdict"], actual["criterion"]
    assert [row["signal"] for row in verdict["signals"]] == ["predicted_log_odds", "log_odds"]
    assert criterion["metric"] == "excess"
    assert criterion["z"] == pytest.approx((criterion["after"] - criterion["expected"]) / criterion["spread"])
    assert opened.unlearning == {}
    assert result.run.unlearning["half"] == 0
    assert [row["what"] for row in actual["costs"]] == ["forecast", "actual", "retraining"]
    assert actual["costs"][1]["steps"] == actual["stopped_at"]
    assert actual["costs"][1]["seconds"] > 0
    assert "Verdict" in (tmp_path / "new" / "evidence.html").read_text()
    words = {
        "confirmed": "forgotten",
        "refuted": "not forgotten",
        "cannot be judged": "carried out, not judged",
    }
    if actual["reached"]:
        assert result.outcome == words[verdict["word"]]
    else:
        assert result.outcome is Outcome.NOT_FORGOTTEN


def test_a_request_of_a_few_ids_cannot_be_judged(run: Path, tmp_path: Path) -> None:
    opened = open_run(run)
    parts = [request(opened, 100, 105), request(opened, 105, 140)]
    result = forget(opened, parts, tmp_path / "new", PLAIN)
    few = result.parts[0]
    assert few["actual"]["verdict"]["word"] == "cannot be judged"
    assert few["outcome"] in ("carried out, not judged", "not forgotten")
    assert (few["outcome"] == "not forgotten") == (not few["actual"]["reached"])


def test_going_on_after_a_refuted_stop_goes_much_further_and_counts_its_looks(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, out = open_run(run), tmp_path / "new"
    every = Criterion("excess", 0.0, 99.0, accuracy_loss=1.0)  # every stop is accepted
    monkeypatch.setattr("remanence.requests.estimate.criterion_for", lambda *given: every)
    monkeypatch.setattr("remanence.requests.verdict.FEWEST", 1)
    monkeypatch.setattr("remanence.requests.verdict.POWER", 0.0)
    monkeypatch.setattr("remanence.requests.verdict.MARGIN", -9.0)  # and every verdict refutes it
    monkeypatch.setattr(
        "remanence.requests.verdict.judge_signals.__kwdefaults__", {"looks": 1, "margin": -9.0}
    )
    first = forget(opened, request(opened, 100, 160), out, PLAIN)
    assert first.outcome is Outcome.NOT_FORGOTTEN
    assert first.evidence["actual"]["reached"]
    assert first.evidence["actual"]["verdict"]["looks"] == 1
    stopped = first.evidence["actual"]["stopped_at"]
    again = forget(opened, request(opened, 100, 160), out, ForgetOptions(relearning=False, resume=True))
    actual = again.evidence["actual"]
    assert actual["stopped_at"] >= max(2 * stopped, 10)
    assert actual["verdict"]["looks"] == 2
    assert actual["verdict"]["alpha"] == pytest.approx(first.evidence["actual"]["verdict"]["alpha"] / 2)
    assert again.evidence["supersedes"] == first.evidence["digest"]


def test_several_requests_are_one_unlearning_with_evidence_each(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    lists = [
        listed(tmp_path / f"{name}.csv", *ends) for name, ends in {"a": (100, 130), "b": (125, 160)}.items()
    ]
    told = ["forget", str(run), "--ids", str(lists[0]), "--ids", str(lists[1]), "--out", str(out)]
    code = command([*told, "--no-relearning", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code in (0, 3, 4)
    assert [Path(row["evidence"]).name for row in document["requests"]] == ["evidence-1", "evidence-2"]
    made = open_run(out)
    assert set(made.forgotten.tolist()) == set(IDS[100:160].tolist())  # the lists overlap
    rows = read_ledger(made)
    assert [row["size"] for row in rows] == [30, 35, 60]
    assert [is_batch(row) for row in rows] == [False, False, True]
    assert len({row["salt"] for row in rows}) == 3
    for number, path in ((1, lists[0]), (2, lists[1])):
        own = out / f"evidence-{number}" / "evidence.json"
        assert all(check.holds for check in verify_evidence(own)), number
        assert command(["verify", str(own), "--ids", str(path)]) == 0
        assert command(["verify", str(own), "--ids", str(lists[2 - number])]) == 1
        evidence = read_evidence(own)
        assert evidence["actual"]["together"] == 2
        assert any("together with 1 other" in caveat for caveat in evidence["plan"]["caveats"])
        assert len(evidence["request"]["ids"]["values"]) == rows[number - 1]["size"]
        assert (out / f"evidence-{number}" / "evidence.html").is_file()
    whole = read_evidence(out / "evidence.json")
    assert whole["request"]["size"] == 60
    # the same command again finds its work done, the other order too; another batch does not
    capsys.readouterr()
    assert command([*told, "--no-relearning"]) == code
    assert "was finished earlier" in capsys.readouterr().err
    assert command(["forget", str(run), "--ids", str(lists[0]), "--out", str(out)]) == 2


def test_a_changed_byte_in_the_evidence_of_one_request_is_found(run: Path, tmp_path: Path) -> None:
    opened, out = open_run(run), tmp_path / "new"
    forget(opened, [request(opened, 100, 130), request(opened, 130, 160)], out, PLAIN)
    own = out / "evidence-2" / "evidence.json"
    content = own.read_bytes()
    own.write_bytes(content.replace(b'"', b"'", 1))
    assert command(["verify", str(own)]) in (1, 2)
    assert not all(check.holds for check in verify_evidence(out / "evidence.json"))
    own.write_bytes(content)
    assert all(check.holds for check in verify_evidence(own))


def test_purge_records_it_in_the_evidence_of_every_request(run: Path, tmp_path: Path) -> None:
    opened, out = open_run(run), tmp_path / "new"
    options = ForgetOptions(relearning=False, method="retrain")
    result = forget(opened, [request(opened, 100, 130), request(opened, 130, 160)], out, options)
    assert result.outcome is Outcome.RETRAINED
    purge(out, [run])
    for folder in ("", "evidence-1", "evidence-2"):
        evidence = read_evidence(out / folder / "evidence.json")
        assert evidence["erased"]
        assert all(check.holds for check in verify_evidence(out / folder / "evidence.json"))


def test_an_interrupted_batch_continues_and_never_half_counts(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, out = open_run(run), tmp_path / "new"
    parts = [request(opened, 100, 130), request(opened, 130, 160)]

    def stopped(*ignored: object, **further: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("remanence.requests.forget_request.evidence_document", stopped)
    with pytest.raises(KeyboardInterrupt):
        forget(opened, parts, out, PLAIN)
    monkeypatch.undo()
    assert not (out / SEAL).exists()
    result = forget(opened, parts, out, PLAIN)
    assert len(result.parts) == 2
    assert len(read_ledger(result.run)) == 3


def test_the_library_takes_several_requests_too(run: Path, tmp_path: Path) -> None:
    lists = [listed(tmp_path / "a.csv", 100, 120), listed(tmp_path / "b.csv", 120, 150)]
    result = open_public_run(run).forget(lists, out=tmp_path / "new", relearning=False)
    assert [part["request"]["size"] for part in result.parts] == [20, 30]


def test_wrong_batches_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="at least one request"):
        together([])
    good, wrong = listed(tmp_path / "a.csv", 100, 130), tmp_path / "wrong.csv"
    wrong.write_text("id\n99999\n")
    told = ["forget", str(run), "--out", str(tmp_path / "new"), "--ids", str(good), "--ids"]
    assert command([*told, str(wrong)]) == 2
    assert "wrong.csv" in capsys.readouterr().err
    assert command([*told, str(good), "--user", "ann"]) == 2
    assert not (tmp_path / "new").exists()
    opened = open_run(run)
    forget(opened, [request(opened, 100, 130), request(opened, 130, 160)], tmp_path / "new", PLAIN)
    with pytest.raises(RunFolderError, match="holds a finished run"):
        forget(opened, [request(opened, 100, 130), request(opened, 130, 161)], tmp_path / "new", PLAIN)
