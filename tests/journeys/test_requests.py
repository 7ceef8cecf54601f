"""A deletion request from arrival to evidence, on a small run: planned, carried out, killed, verified, purged."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from remanence.cli.exit_codes import ExitCode, exit_code_of
from remanence.cli.main import run as command
from remanence.data import digits
from remanence.errors import RunFolderError
from remanence.experiments import oracle_settings
from remanence.requests import (
    CalibrationSettings,
    ForgetOptions,
    Outcome,
    calibrate,
    forget,
    make_plan,
    purge,
    read_calibration,
    read_evidence,
    read_request,
    verify_evidence,
)
from remanence.requests.attestation import serialize, sign
from remanence.requests.evidence_page import render_page
from remanence.requests.outcome import open_requests
from remanence.requests.request_ledger import read_ledger
from remanence.requests.signing import reference_of
from remanence.storage import SEAL, open_folder, read_trace, seal_in_place
from remanence.storage.lock import exclusive
from remanence.training import Recipe, Run, RunSettings, open_run, train_run
from remanence.types import ForgetSet

IDS = digits()[0].ids
PLANTED = tuple(IDS[:40].tolist())
QUICK = Recipe(epochs=4, learning_rate=0.2, batch_size=64, weight_decay=1e-3)
LABELS = digits()[0].labels.numpy()
CANARIES = IDS[800:860][LABELS[800:860] != 7]
"""None of class 7, since one test removes the whole class."""
Ask = Callable[..., Path]
SETTLED = ForgetOptions(method="retrain", relearning=False)
"""Retraining settles a request whatever the verdict on so small a model is."""


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("requests") / "run"
    options = {"hidden": [32]}
    settings = RunSettings(
        "digits", "mlp", QUICK, record=4, placement="even", poison=PLANTED, model_options=options
    )
    train_run(settings.with_canaries(CANARIES), out)
    calibrate(open_run(out), CalibrationSettings(method="finetune", budget=40), workers=1)
    return out


@pytest.fixture
def run(calibrated: Path, tmp_path: Path) -> Path:
    """A copy of its own for every test, whose paths and locks are nobody else's."""
    shutil.copytree(calibrated, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    def write(ids: Any, name: str = "request.csv") -> Path:
        (tmp_path / name).write_text("id\n" + "".join(f"{example}\n" for example in ids))
        return tmp_path / name

    return write


@pytest.fixture
def key(tmp_path: Path) -> Path:
    made = Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub").write_bytes(public)
    return tmp_path / "key.pem"


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that must be refused; its one sentence."""
    assert command([str(argument) for argument in arguments]) == 2
    return " ".join(capsys.readouterr().err.split())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but locks and marks."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_calibration_has_twelve_models_and_twenty_sets(calibrated: Path) -> None:
    made = read_calibration(open_run(calibrated))
    assert len(made.pool.left_out) == 12
    assert len(made.runs) == 20
    assert not (calibrated / ".calibrating").exists()


def test_a_plan_says_everything_and_changes_nothing(
    run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run)
    page = tmp_path / "plan.html"
    assert command(["plan", str(run), "--ids", str(ask(IDS[100:140])), "--page", str(page), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert contents(run) == before
    assert plan["size"] == 40
    assert 0 <= plan["forecast"]["low"] <= plan["forecast"]["steps"]
    assert plan["bound"]["status"] in ("heuristic", "vacuous")
    assert plan["criterion"]["metric"] == "excess"
    assert plan["action"] in ("unlearn", "retrain", "nothing")
    losses = [member["loss"] for member in plan["members"]]
    assert losses == sorted(losses, reverse=True)
    assert page.read_text().count("data:image/png") == 32
    assert command(["plan", str(run), "--ids", str(ask(IDS[100:140]))]) == 0
    assert "90 % interval" in capsys.readouterr().out


def test_a_page_never_overwrites_a_file(
    run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, page = ask(IDS[100:140]), tmp_path / "plan.html"
    before = asked.read_bytes()
    told = ["plan", str(run), "--ids", str(asked), "--page"]
    assert "--page must end in .html" in refused(capsys, *told, asked)
    assert asked.read_bytes() == before
    page.write_text("mine")
    assert "exists and was not changed" in refused(capsys, *told, page)
    assert page.read_text() == "mine"
    assert command([*told, str(page), "--force"]) == 0
    assert "data:image/png" in page.read_text()


def test_a_small_request_is_told_what_it_can_show(run: Path, ask: Ask) -> None:
    opened = open_run(run)
    plan = make_plan(opened, read_request(ask(IDS[200:203]), opened))
    assert plan.criterion.metric == "excess"
    assert any("3 examples cannot be measured in points of accuracy" in caveat for caveat in plan.caveats)


def test_what_was_not_calibrated_is_said(run: Path, ask: Ask) -> None:
    opened = open_run(run)
    train = opened.clean[0]
    sevens = train.ids[train.labels.numpy() == 7]
    plan = make_plan(opened, read_request(ask(sevens), opened))
    assert any("of a class" in caveat for caveat in plan.caveats)
    many = make_plan(opened, read_request(ask(IDS[:400]), opened))
    assert any("its size, 400" in caveat for caveat in many.caveats)


def test_forget_leaves_a_run_with_its_past_and_its_evidence(
    run: Path, ask: Ask, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, ids = tmp_path / "new", IDS[20:60]
    before = contents(run)
    asked = ask(ids)
    arguments = ["--key", str(key), "--asked-by", "Legal", "--oracle", "--json"]
    code = command(["forget", str(run), "--ids", str(asked), "--out", str(new), *arguments])
    assert contents(run) == before
    made = open_run(new)
    made.folder.verify()
    assert set(made.forgotten.tolist()) == set(ids.tolist())
    assert not np.isin(ids, read_trace(made.folder).ids).any()
    assert not np.isin(ids, made.data()[0].ids).any()
    assert not np.isin(ids, made.settings.poison).any()
    assert made.poison is not None
    assert len(made.poison.ids) == 20
    read_calibration(made)  # requests can follow one another
    (row,) = read_ledger(made)
    assert set(row["ids"]) == set(ids.tolist())
    document = read_evidence(new / "evidence.json")
    assert document["request"]["asked_by"] == "Legal"
    assert document["request"]["reference"] == reference_of(row["salt"])
    assert row["salt"] not in json.dumps(document)
    assert document["model"]["before"]["weights"] == open_run(run).folder.files()["weights.safetensors"]
    assert {row["metric"] for row in document["audit"]} >= {
        "mia_confidence",
        "log_odds",
        "ua",
        "ra",
        "test",
        "gus",
        "gus_z",
        "relearn_retain",
        "relearn_retain_log_odds",
        "relearn_speed",
        "relearn_speed_log_odds",
        "harm",
        "harm_worst_class",
        "rmia",
        "one_run_epsilon",
    }
    findings = {finding["metric"]: finding for finding in document["audit"]}
    assert findings.pop("rmia")["oracle"] is None  # the oracle is its reference model
    assert all(finding["oracle"] is not None for finding in findings.values())
    assert findings["harm"]["before"] == 0
    assert findings["relearn_retain"]["before"] is None  # nothing can come back in a model that never forgot
    assert findings["relearn_retain"]["after"] is not None
    assert findings["one_run_epsilon"]["after"] >= 0
    assert not any("Relearning" in sentence for sentence in document["not_measured"])
    assert {bound["status"] for bound in document["bounds"]} <= {"heuristic", "vacuous"}
    assert document["actual"]["stopped_at"] == made.unlearning["steps"]
    told = json.loads(capsys.readouterr().out)
    assert [row["path"] for row in told["remaining_artifacts"] if row["purge_erases"]] == [str(run)]
    assert sum(row["purge_erases"] for row in document["remaining_artifacts"]) == 1
    page = (new / "evidence.html").read_text()
    assert page == render_page(document, document["signer"]["public_key"]), (
        "it is made from the signed content"
    )
    assert f"<h1>Evidence of a deletion request: {document['outcome']}</h1>" in page
    checks = [str(new / "evidence.json"), "--public-key", str(tmp_path / "key.pub"), "--ids", str(asked)]
    assert command(["verify", *checks]) == 0
    assert command(["verify", checks[0], "--ids", str(ask(IDS[21:61], "other.csv"))]) == 1
    # the same command again finds its work done
    assert command(["forget", str(run), "--ids", str(asked), "--out", str(new)]) == code
    assert code == exit_code_of(Outcome(document["outcome"]))


def test_relearning_is_announced_and_can_be_skipped(run: Path, ask: Ask, tmp_path: Path) -> None:
    opened, notes = open_run(run), []
    request = read_request(ask(IDS[100:130]), opened)
    forget(opened, request, tmp_path / "told", note=notes.append)
    assert len(notes) == 1
    assert notes[0].startswith("Relearning: 1 model,")
    options = ForgetOptions(relearning=False, apart=True)
    document = forget(opened, request, tmp_path / "skipped", options, note=notes.append).evidence
    assert len(notes) == 1
    assert not any(finding["metric"].startswith("relearn") for finding in document["audit"])
    assert any("--no-relearning" in sentence for sentence in document["not_measured"])


def test_canaries_that_are_removed_prove_nothing(run: Path, ask: Ask, tmp_path: Path) -> None:
    """Only included canaries can be removed, so a bound that counted them would read their coins."""
    opened = open_run(run)
    assert opened.canaries is not None
    included = opened.canaries.examples.ids[opened.canaries.included]
    removed = forget(opened, read_request(ask(included[:5]), opened), tmp_path / "new").run
    assert removed.canaries is not None
    assert len(removed.canaries.examples) == len(CANARIES) - 5
    assert not np.isin(included[:5], removed.canaries.examples.ids).any()


def test_one_changed_byte_is_found(run: Path, ask: Ask, tmp_path: Path) -> None:
    new = tmp_path / "new"
    opened = open_run(run)
    forget(opened, read_request(ask(IDS[100:130]), opened), new)
    assert all(check.holds for check in verify_evidence(new / "evidence.json"))
    rng = random.Random(0)
    for name in ("evidence.json", "weights.safetensors", "config.toml", "ledger.jsonl", "trace.safetensors"):
        whole = (new / name).read_bytes()
        for _ in range(5):
            changed = bytearray(whole)
            changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(7)
            (new / name).write_bytes(bytes(changed))
            assert command(["verify", str(new / "evidence.json")]) in (1, 2), name
        (new / name).write_bytes(whole)
    assert command(["verify", str(new / "evidence.json")]) == 0


def test_requests_follow_one_another_and_nobody_comes_back(
    run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for source, ids, out in ((run, IDS[100:130], first), (first, IDS[200:225], second)):
        opened = open_run(source)
        forget(opened, read_request(ask(ids), opened), out)
    made = open_run(second)
    gone = {*IDS[100:130].tolist(), *IDS[200:225].tolist()}
    assert set(made.forgotten.tolist()) == gone
    rows = read_ledger(made)
    assert [row["size"] for row in rows] == [30, 25]
    assert rows[1]["model_before"] == rows[0]["model_after"]
    assert rows[1]["cumulative"]["value"] > rows[1]["bound"]["value"]
    assert not gone & set(made.data()[0].ids.tolist())
    again = oracle_settings(made, ForgetSet("more", IDS[300:310]), seed=0)
    assert gone <= set(again.without)
    assert "have been forgotten already, the first is" in refused(
        capsys, "forget", second, "--ids", ask(IDS[120:125]), "--out", tmp_path / "third"
    )
    # from the first run, another way would bring them back: it must be meant
    sentence = refused(capsys, "forget", run, "--ids", ask(IDS[300:330]), "--out", tmp_path / "third")
    assert "is continued in" in sentence
    assert not (tmp_path / "third").exists()


def test_wrong_input_is_refused_in_one_sentence_and_nothing_changes(
    run: Path, ask: Ask, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run)
    good, out = ask(IDS[100:130]), tmp_path / "new"
    wrong = tmp_path / "wrong.csv"
    told = ["forget", run, "--out", out, "--ids"]
    wrong.write_text('id\n100\n"10\n')
    assert "wrong.csv, line 3" in refused(capsys, *told, wrong)
    wrong.write_text("id,why\n100,gdpr\n101\n")
    assert "wrong.csv, line 3: must have 2 fields" in refused(capsys, *told, wrong)
    wrong.write_text("id\n5\n99999\n")
    assert "no example has the id" in refused(capsys, *told, wrong)
    wrong.write_text("id\n")
    assert "wrong.csv" in refused(capsys, *told, wrong)
    assert "no column" in refused(capsys, *told, good, "--column", "person")
    wrong.write_text("no key")
    assert "Ed25519" in refused(capsys, *told, good, "--key", wrong)
    assert "outside of" in refused(capsys, "forget", run, "--ids", good, "--out", run / "new")
    assert "at least 1 step" in refused(capsys, *told, good, "--budget", 0)
    assert not out.exists()
    assert contents(run) == before


def test_lists_from_legal_are_reported_whole_and_can_be_skipped(
    run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3 unknown ids, 2 removed before and 1 in the held-out split."""
    first, second = tmp_path / "first", tmp_path / "second"
    opened = open_run(run)
    forget(
        opened, read_request(ask(IDS[100:130], "early.csv"), opened), first, ForgetOptions(relearning=False)
    )
    held_out = opened.clean[1].ids[:1]
    asked = ask([*IDS[200:225], 900001, 900002, 900003, *IDS[100:102], *held_out])
    told = ["forget", str(first), "--ids", str(asked), "--out", str(second), "--no-relearning"]
    sentence = refused(capsys, *told)
    assert "In all, 6 of 31 ids cannot be removed" in sentence
    assert "3 never in the data (900001, 900002, 900003)" in sentence
    assert f"1 in the held-out split ({held_out[0]})" in sentence
    assert re.search(r"2 removed on \d{4}-\d\d-\d\d by request [0-9a-f]{8} ", sentence)
    assert "early" not in sentence, "the list of an earlier request is not named"
    assert "--already-removed to skip" in sentence
    sentence = refused(capsys, *told, "--unknown", "skip")
    assert "2 of 31 ids cannot be removed" in sentence
    assert not second.exists()
    assert command([*told, "--unknown", "skip", "--already-removed", "skip"]) in (0, 3, 4)
    assert "Skipped 6 ids: 3 never in the data; 2 removed on" in " ".join(capsys.readouterr().err.split())
    assert set(read_ledger(open_run(second))[-1]["ids"]) == set(IDS[200:225].tolist())
    # one reader of lists for every command
    assert (
        command(["plan", str(second), "--ids", str(asked), "--unknown", "skip", "--already-removed", "skip"])
        == 2
    )
    plain = ask(IDS[300:310], "plain.csv")
    unlearning = ["unlearn", str(run), "--forget", str(plain), "--method", "finetune", "--steps", "2"]
    assert command([*unlearning, "--out", str(tmp_path / "unlearned")]) == 0
    assert set(open_run(tmp_path / "unlearned").forgotten.tolist()) == set(IDS[300:310].tolist())
    assert command(["audit", str(run), "--forget", str(plain), "--metrics", "ua"]) == 0
    training = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--record", "0"]
    assert command([*training, "--without", str(plain), "--out", str(tmp_path / "oracle")]) == 0
    assert set(open_run(tmp_path / "oracle").never_seen.tolist()) == set(IDS[300:310].tolist())


def test_other_peoples_folders_are_refused(
    run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, other = tmp_path / "plain", tmp_path / "other"
    recipe = Recipe(epochs=1, learning_rate=0.1)
    train_run(RunSettings("digits", "mlp", recipe, record=0), plain)
    assert "it has none" in refused(capsys, "calibrate", plain)
    train_run(RunSettings("digits", "mlp", recipe, record=2, seed=3), other)
    good = ask(IDS[100:130])
    shutil.copytree(run / "calibration", other / "calibration")
    assert "another model" in refused(capsys, "plan", other, "--ids", good)
    assert "no request made it" in refused(capsys, "purge", run)
    assert "another document" in refused(capsys, "verify", run / "calibration" / "facts.json")
    assert "is calibrated with 12 models and 20 sets" in refused(capsys, "calibrate", run)


def test_two_requests_at_once_are_one_after_the_other(run: Path, ask: Ask, tmp_path: Path) -> None:
    opened = open_run(run)
    request = read_request(ask(IDS[100:130]), opened)
    with (
        exclusive(run / ".request.lock", "held"),
        pytest.raises(RunFolderError, match="Another request is being carried out"),
    ):
        forget(opened, request, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert read_ledger(forget(opened, request, tmp_path / "new").run)


def test_a_budget_that_is_too_small_is_said(
    run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hard = the_hardest(run)
    new = tmp_path / "new"
    told = ["forget", str(run), "--ids", str(ask(hard)), "--out", str(new), "--budget", "2"]
    assert command(told) == ExitCode.NOT_FORGOTTEN == 3
    said = capsys.readouterr().out
    assert said.startswith("NOT FORGOTTEN (exit code 3): the criterion does not hold after 2 steps")
    assert "remanence purge" not in said
    document = read_evidence(new / "evidence.json")
    assert document["outcome"] == "not forgotten"
    assert not document["actual"]["reached"]
    page = (new / "evidence.html").read_text()
    assert "does not hold" in page
    assert "<title>Evidence of a deletion request: not forgotten" in page
    (row,) = read_ledger(open_run(new))
    assert open_requests([row]) == [row]
    assert command(told) == 3, "the same command again changes nothing"
    capsys.readouterr()
    assert command(["verify", str(new / "evidence.json")]) == 0
    assert capsys.readouterr().out.startswith("outcome: not forgotten\n")
    assert command(["verify", str(new / "evidence.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "not forgotten"
    # the earlier model is needed to go on
    assert "not forgotten" in refused(capsys, "purge", new, "--erase", run, "--yes")
    assert (run / "weights.safetensors").exists()
    other = ["forget", run, "--ids", ask(IDS[300:330], "other.csv"), "--out", tmp_path / "other"]
    assert "was not forgotten; it is in" in refused(capsys, *other)


def the_hardest(run: Path) -> Any:
    table = read_trace(open_run(run).folder)
    return table.ids[np.argsort(-table.norms.sum(axis=0))[:40]]


def test_going_on_is_one_command(
    run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, asked = tmp_path / "new", ask(the_hardest(run))
    told = ["forget", str(run), "--ids", str(asked), "--out", str(new), "--no-relearning"]
    assert command([*told, "--budget", "2"]) == 3
    said, failed = capsys.readouterr().out, read_evidence(new / "evidence.json")["digest"]
    way_on = next(line for line in said.splitlines() if line.startswith("To go on for more steps: "))
    assert command(shlex.split(way_on.partition(": ")[2])[1:]) in (0, 3, 4)
    document = read_evidence(new / "evidence.json")
    assert document["actual"]["budget"] == 42
    assert document["actual"]["stopped_at"] > 2
    assert document["supersedes"] == failed
    assert all(check.holds for check in verify_evidence(new / "evidence.json"))
    assert len(read_ledger(open_run(new))) == 1
    # the same steps as without the stop
    straight = tmp_path / "straight"
    forget(
        open_run(run),
        read_request(asked, open_run(run)),
        straight,
        ForgetOptions(budget=42, apart=True, relearning=False),
    )
    rows = {row["step"]: row for row in open_run(straight).folder.rows("measurements")}
    again = {row["step"]: row for row in open_run(new).folder.rows("measurements")}
    assert all(again[step] == rows[step] for step in rows.keys() & again.keys())


def test_a_larger_budget_goes_on_also_after_a_kill(
    run: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, new = open_run(run), tmp_path / "new"
    request = read_request(ask(the_hardest(run)), opened)
    forget(opened, request, new, ForgetOptions(budget=2, relearning=False))

    def stopped(*ignored: object, **further: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("remanence.requests.judged_request.audit_request", stopped)
    with pytest.raises(KeyboardInterrupt):
        forget(opened, request, new, ForgetOptions(budget=6, relearning=False))
    monkeypatch.undo()
    assert not (new / SEAL).exists()
    result = forget(opened, request, new, ForgetOptions(resume=True, relearning=False))
    assert result.evidence["actual"]["budget"] == 6
    assert result.evidence["supersedes"] is not None
    assert not (new / "unfinished.toml").exists()
    # a run that somebody continues is not changed any more
    others = IDS[~np.isin(IDS, result.run.removed)][300:330]
    further = forget(result.run, read_request(ask(others), result.run), tmp_path / "next")
    rows = read_ledger(further.run)
    assert [row["size"] for row in open_requests(rows)][:1] == [40], "giving up leaves the ids open"
    with pytest.raises(RunFolderError, match="is continued in"):
        forget(opened, request, new, ForgetOptions(budget=60))


def test_retraining_instead_has_the_same_evidence(
    run: Path, ask: Ask, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, ids = tmp_path / "new", the_hardest(run)
    told = [
        "forget",
        str(run),
        "--ids",
        str(ask(ids)),
        "--out",
        str(new),
        "--key",
        str(key),
        "--no-relearning",
    ]
    assert command([*told, "--budget", "2"]) == 3
    failed = read_evidence(new / "evidence.json")
    assert command([*told, "--method", "retrain"]) == 0
    assert "Retrained without the examples" in capsys.readouterr().out
    document = read_evidence(new / "evidence.json")
    assert document["outcome"] == "retrained"
    assert document["method"]["name"] == "retrain"
    assert document["supersedes"] == failed["digest"]
    assert document.keys() == failed.keys()
    assert document["model"]["after"] != failed["model"]["after"]
    made = open_run(new)
    assert not np.isin(ids, made.data()[0].ids).any()
    assert open_requests(read_ledger(made)) == []
    assert sorted(path.name for path in new.iterdir() if path.is_dir()) == ["calibration"]
    assert command(["verify", str(new / "evidence.json"), "--public-key", str(tmp_path / "key.pub")]) == 0
    assert command(["purge", str(new), "--erase", str(run), "--yes", "--key", str(key)]) == 0
    assert not (run / "weights.safetensors").exists()


def test_purge_says_sizes_and_leaves_copies_unless_told(
    run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, copy = tmp_path / "new", tmp_path / "copy"
    opened = open_run(run)
    options = ForgetOptions(budget=2, relearning=False)
    assert (
        forget(opened, read_request(ask(the_hardest(run)), opened), new, options).outcome == "not forgotten"
    )
    shutil.copytree(run, copy)
    arguments = ["purge", str(new), "--erase", str(run), "--although-not-forgotten"]
    assert command([*arguments, "--json"]) == 0
    rows = {row["path"]: row for row in json.loads(capsys.readouterr().out)["remaining_artifacts"]}
    weights = run / "weights.safetensors"
    assert rows[str(weights)]["bytes"] == weights.stat().st_size
    assert rows[str(copy)]["copy_of"] == str(run)
    assert command(arguments) == 0
    listed = capsys.readouterr().out
    assert f"not erased: {copy} (" in listed
    assert "--copies erases them too" in listed
    assert command([*arguments, "--copies", "--yes"]) == 0
    assert not weights.exists()
    assert not (copy / "weights.safetensors").exists()


def test_purge_erases_what_still_remembers_and_the_evidence_records_it(
    run: Path, ask: Ask, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    (run / "notes.txt").write_text("mine")
    command(["plan", str(run), "--ids", str(ask(IDS[100:130])), "--page", str(tmp_path / "plan.html")])
    told = ["forget", str(run), "--ids", str(ask(IDS[100:130])), "--out", str(new), "--key", str(key)]
    assert command([*told, "--method", "retrain"]) == 0
    capsys.readouterr()
    assert command(["purge", str(new), "--erase", str(run)]) == 0
    listed = capsys.readouterr().out
    for what in (
        "weights.safetensors",
        "trace.safetensors",
        "poison.safetensors",
        "calibration",
        "plan.html",
    ):
        assert what in listed
    assert "Nothing was erased" in listed
    assert (run / "weights.safetensors").exists()
    assert re.search(
        r"give the \W*key\W* that signed it", refused(capsys, "purge", new, "--erase", run, "--yes")
    )
    old = read_evidence(new / "evidence.json")["digest"]
    assert command(["purge", str(new), "--erase", str(run), "--yes", "--key", str(key)]) == 0
    assert sorted(path.name for path in run.iterdir()) == ["notes.txt"]
    document = read_evidence(new / "evidence.json")
    assert document["supersedes"] == old
    assert any("the model before" in artifact["description"] for artifact in document["erased"])
    capsys.readouterr()
    assert command(["purge", str(new), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["remaining_artifacts"]
    left = sorted(Path(row["path"]).name for row in rows)
    assert left == ["calibration", "plan.html", "request.csv"], "the list of ids is named, not erased"
    assert len(document["remaining_artifacts"]) == 3
    assert "Erased since" in (new / "evidence.html").read_text()
    assert command(["verify", str(new / "evidence.json"), "--public-key", str(tmp_path / "key.pub")]) == 0
    open_folder(new).verify()
    assert not list(new.glob(".before-purge")) + list(new.glob(".partial-*"))


def test_a_purge_that_was_killed_is_finished_by_the_next(
    run: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    opened = open_run(run)
    forget(opened, read_request(ask(IDS[100:130]), opened), new, SETTLED)

    def stopped(*ignored: object) -> None:
        raise KeyboardInterrupt

    # the files are erased and the evidence is written when it is stopped: the seal does not fit any more
    monkeypatch.setattr("remanence.requests.purging.seal_in_place", stopped)
    with pytest.raises(KeyboardInterrupt):
        purge(new, [run])
    assert not (run / "weights.safetensors").exists()
    monkeypatch.undo()
    purge(new, [run])
    assert all(check.holds for check in verify_evidence(new / "evidence.json"))
    assert any(
        "trace rows" in artifact["description"] for artifact in read_evidence(new / "evidence.json")["erased"]
    )
    open_folder(new).verify()


def forked(work: Callable[[], object]) -> int:
    """Do it in a child that shares what is loaded; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        os._exit(9)


def unlearned(out: Path, source: Run, ids: Any) -> None:
    """Either a whole run with a true ledger, or nothing that anybody could take for one."""
    if not (out / SEAL).exists():
        return
    made = open_run(out)
    made.folder.verify()
    assert all(check.holds for check in verify_evidence(out / "evidence.json"))
    (row,) = read_ledger(made)
    assert row["ids"] == ids.tolist()
    assert row["model_before"] == source.folder.files()["weights.safetensors"]
    assert row["model_after"] == made.folder.files()["weights.safetensors"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.journey
def test_fifty_kills_never_leave_a_wrong_ledger(run: Path, ask: Ask, tmp_path: Path) -> None:
    """SIGKILL at fifty random moments, every other one while it is under way; the next start finishes it."""
    opened, ids, rng = open_run(run), IDS[100:140], random.Random(7)
    request, out, before = read_request(ask(ids), opened), tmp_path / "new", contents(run)

    def work(place: Path = out) -> None:
        forget(opened, request, place, ForgetOptions(apart=True))

    started = time.monotonic()
    work(tmp_path / "quiet")
    took = time.monotonic() - started
    weights = (tmp_path / "quiet" / "weights.safetensors").read_bytes()
    kills = midway = 0
    while kills < 50:
        child = forked(work)
        if kills % 2:
            begun = time.monotonic()
            while not (out / "unfinished.toml").exists() and time.monotonic() < begun + 2 * took:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.2 * took))
        else:
            time.sleep(rng.uniform(0, 1.1 * took))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        unlearned(out, opened, ids)
        midway += (out / "unfinished.toml").exists()
        if (out / SEAL).exists():
            assert (out / "weights.safetensors").read_bytes() == weights
            shutil.rmtree(out)
    assert midway >= 5  # kills that met a request half done
    work()
    unlearned(out, opened, ids)
    assert (out / "weights.safetensors").read_bytes() == weights
    assert contents(run) == before


# What a received folder must not be able to do: each of these worked once.


@pytest.fixture
def made(run: Path, ask: Ask, tmp_path: Path) -> Path:
    """A request that was carried out; its new run."""
    opened = open_run(run)
    forget(opened, read_request(ask(IDS[100:130]), opened), tmp_path / "new", SETTLED)
    return tmp_path / "new"


def reseal(folder: Path, names: list[str] | None = None) -> None:
    """Seal a folder again after it was edited, as somebody who can write it could."""
    seal_in_place(folder, "training", names or list(open_folder(folder).files()))


def test_resealed_ids_of_two_kinds_and_a_calibration_without_trials_are_refused(
    made: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both gave a traceback; the long fuzzer found them."""
    request, ids = ask(IDS[140:150], "next.csv"), made / "ledger-ids.json"
    trials = made / "calibration" / "trials.jsonl"
    trials.write_text("")
    seal_in_place(trials.parent, "calibration", list(open_folder(trials.parent).files()))
    assert "damaged: expected a budget" in refused(capsys, "plan", made, "--ids", request)
    document = json.loads(ids.read_text())
    ids.write_text(json.dumps(document | {"forgotten": ["a", *document["forgotten"]]}))
    reseal(made)
    assert "got both" in refused(capsys, "plan", made, "--ids", request)


def test_a_note_of_a_purge_in_a_received_folder_is_not_obeyed(made: Path, run: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    note = {"erase": [str(precious)], "evidence": read_evidence(made / "evidence.json")}
    (made / ".purging.json").write_text(json.dumps(note))
    purge(made, [run])
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("name", ["../precious.txt", "/tmp/precious-of-nobody", "a/../../precious.txt", ""])
def test_a_seal_that_names_files_elsewhere_is_refused(
    name: str, made: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    seal = json.loads((run / SEAL).read_text())
    seal["files"][name] = {"bytes": 4, "sha256": hashlib.sha256(b"mine").hexdigest()}
    body = {key: value for key, value in seal.items() if key != "digest"}
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    (run / SEAL).write_text(
        json.dumps(body | {"digest": hashlib.sha256(text.encode()).hexdigest()}, indent=2) + "\n"
    )
    assert "is damaged" in refused(capsys, "purge", made, "--erase", run, "--yes")
    assert precious.read_text() == "mine"
    assert (run / "weights.safetensors").exists()


def test_links_are_never_followed(
    made: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file.txt").write_text("mine")
    trace = run / "trace.safetensors"
    shutil.copy(trace, precious / "trace.safetensors")
    trace.unlink()
    trace.symlink_to(precious / "trace.safetensors")
    assert "links are never followed" in refused(capsys, "purge", made, "--erase", run, "--yes")
    trace.unlink()
    shutil.copy(precious / "trace.safetensors", trace)
    (run / "oracle").symlink_to(precious)
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints" / "link").symlink_to(precious)
    (tmp_path / "alias").symlink_to(run)
    assert "is a link" in refused(capsys, "purge", made, "--erase", tmp_path / "alias", "--yes")
    assert command(["purge", str(made), "--erase", str(run), "--yes"]) == 0
    assert (precious / "file.txt").read_text() == "mine"
    assert (precious / "trace.safetensors").exists()
    assert not (run / "checkpoints").exists()


def test_a_run_that_names_somebody_elses_model_erases_nothing_by_itself(
    made: Path, run: Path, calibrated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run with the weights of an ancestor but another content is not that ancestor; and nothing is erased unnamed."""
    assert command(["purge", str(made), "--yes"]) == 0
    assert (run / "weights.safetensors").exists()
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (other / "measurements.jsonl").write_text("")
    reseal(other)
    assert "its digest is another one" in refused(capsys, "purge", made, "--erase", other, "--yes")
    stranger = tmp_path / "stranger"
    train_run(RunSettings("digits", "mlp", QUICK, seed=5, record=0, model_options={"hidden": [32]}), stranger)
    assert "in no row of the ledger" in refused(capsys, "purge", made, "--erase", stranger, "--yes")
    assert "must not name the run itself" in refused(capsys, "purge", made, "--erase", made, "--yes")
    assert (stranger / "weights.safetensors").exists()


def test_forged_evidence_is_never_signed_or_sealed_again(
    run: Path, ask: Ask, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    told = ["forget", str(run), "--ids", str(ask(IDS[100:130])), "--out", str(new), "--key", str(key)]
    assert command([*told, "--method", "retrain"]) == 0
    document = read_evidence(new / "evidence.json")
    forged = document | {"actual": document["actual"] | {"reached": True, "steps": 1.0}}
    (new / "evidence.json").write_bytes(serialize(forged))
    reseal(new)
    capsys.readouterr()
    assert "is not valid" in refused(capsys, "purge", new, "--erase", run, "--yes", "--key", key)
    assert command(["verify", str(new / "evidence.json")]) == 1
    assert (run / "weights.safetensors").exists()
    # an unsigned one does not become a signed one either
    unsigned = sign(
        {name: value for name, value in document.items() if name not in ("digest", "signature")}, None
    )
    (new / "evidence.json").write_bytes(serialize(unsigned))
    capsys.readouterr()
    assert command(["purge", str(new), "--erase", str(run), "--yes", "--key", str(key)]) == 2
    assert (run / "weights.safetensors").exists()


def test_the_dry_run_lists_exactly_what_is_erased(
    made: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["purge", str(made), "--erase", str(run), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["remaining_artifacts"]
    announced = {row["path"] for row in rows if row["purge_erases"]}
    before = {str(path) for path in run.rglob("*")}
    assert command(["purge", str(made), "--erase", str(run), "--yes", "--json"]) == 0
    gone = before - {str(path) for path in run.rglob("*")}
    assert announced <= gone
    assert all(
        any(path == part or path.startswith(f"{part}/") for part in announced)
        for path in gone
        if "/." not in path
    )


def test_no_digest_of_the_evidence_lets_an_id_be_guessed(run: Path, ask: Ask, tmp_path: Path) -> None:
    """One id out of the data: nothing in the evidence can be computed from a guess without the ledger's salt."""
    opened = open_run(run)
    forget(opened, read_request(ask(IDS[100:101], "one.csv"), opened), tmp_path / "new")
    text = (tmp_path / "new" / "evidence.json").read_text()
    for name in ("config.toml", "ledger-ids.json", "ledger.jsonl"):
        assert hashlib.sha256((tmp_path / "new" / name).read_bytes()).hexdigest() not in text
    for guess in IDS[95:105].tolist():
        for content in (f"id\n{guess}\n", f"{guess}\n", f"[{guess}]", str(guess)):
            assert hashlib.sha256(content.encode()).hexdigest() not in text
    for name in ("ledger.jsonl", "ledger-ids.json"):
        assert oct((tmp_path / "new" / name).stat().st_mode)[-3:] == "600"


def test_removed_examples_do_not_come_back_when_the_new_run_is_moved(
    made: Path, run: Path, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made / "notes.txt").write_text("mine")
    assert command(["verify", str(made / "evidence.json"), "--json"]) == 0
    assert "notes.txt" in json.loads(capsys.readouterr().out)["not_covered"], (
        "verify says what it does not cover"
    )
    made.rename(tmp_path / "served")
    sentence = refused(
        capsys, "forget", run, "--ids", ask(IDS[200:230], "second.csv"), "--out", tmp_path / "third"
    )
    assert "is continued in" in sentence
    assert "may have been moved" in sentence
    assert not (tmp_path / "third").exists()
