"""A regression on a table with a column of persons, from training to the evidence that one person is forgotten."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from remanence.cli.main import run as command
from remanence.requests import read_evidence, verify_evidence
from remanence.training import open_run

pytestmark = pytest.mark.own_model

TABLE = ("--label-column", "price", "--user-column", "owner", "--missing", "median")
RECIPE = ("--option", "hidden=(16,)", "--epochs", "8", "--lr", "0.02", "--record", "3")
SIZES = {"models": 20, "sets": 20, "budget": 10, "workers": 1}
QUICK = ("--method", "finetune", "--sizes", "20", "40", *(f"--{name}={size}" for name, size in SIZES.items()))


def write_table(path: Path, *, without: str = "") -> Path:
    rng = np.random.default_rng(0)
    lines = ["id,area,rooms,city,owner,price"]
    for i in range(300):
        area, rooms = rng.uniform(30, 200), rng.integers(1, 6)
        shown = "" if rng.random() < 0.1 else f"{area:.1f}"
        city = ("Oslo", "Bergen")[rng.integers(2)]
        price = 3000 * area + 20_000 * rooms + rng.normal() * 5000
        if (owner := f"Ann-{i // 5} Solberg") != without:
            lines.append(f"house-{i:04},{shown},{rooms},{city},{owner},{price:.2f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained and calibrated run on a table."""
    folder = tmp_path_factory.mktemp("tables")
    table = write_table(folder / "houses.csv")
    assert command(["train", "--data", str(table), *TABLE, *RECIPE, "--out", str(folder / "run")]) == 0
    assert command(["calibrate", str(folder / "run"), *QUICK]) == 0
    return folder


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    capsys.readouterr()
    assert command([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_one_person_is_forgotten_with_evidence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, user = folder / "run", "Ann-3 Solberg"
    opened = open_run(run)
    assert opened.clean[0].target == "number"
    chosen = document(capsys, "select", run, "--how", "user", "--user", user, "--out", folder / "set.json")
    assert chosen["forget_sets"][0]["size"] == 5
    plan = document(capsys, "plan", run, "--user", user)
    assert plan["size"] == 5
    document(capsys, "unlearn", run, "--forget", folder / "set.json", "--method", "neggrad_plus",
             "--epochs", "1", "--out", folder / "unlearned")  # fmt: skip
    audit = document(capsys, "audit", run, folder / "unlearned", "--forget", folder / "set.json")
    assert len(audit["audits"]) == 2
    capsys.readouterr()
    told = ["forget", str(run), "--user", user, "--out", str(folder / "new"), "--oracle", "--json"]
    assert command(told) in (0, 4), "five examples may be too few to be judged"
    made = json.loads(capsys.readouterr().out)
    checks = verify_evidence(folder / "new" / "evidence.json")
    assert all(check.holds for check in checks)
    new = open_run(folder / "new")
    assert sorted(new.forgotten.tolist()) == [f"house-{i:04}" for i in range(15, 20)]
    evidence = read_evidence(folder / "new" / "evidence.json")
    assert {row["metric"] for row in evidence["audit"]} >= {
        "mia_confidence",
        "log_odds",
        "ua",
        "ra",
        "test",
        "mia_loss",
    }
    assert "mia_entropy" not in {row["metric"] for row in evidence["audit"]}
    assert any("computed from all training rows" in sentence for sentence in evidence["not_measured"])
    remaining = {row["path"]: row["description"] for row in made["remaining_artifacts"]}
    assert "still has their rows" in remaining[str((folder / "houses.csv").resolve())]
    assert (
        "still holds them" in remaining[str((folder / "run").resolve())] or str(folder / "run") in remaining
    )
    assert "Solberg" not in json.dumps(evidence), "the evidence does not name the person"
    assert command(["verify", str(folder / "new" / "evidence.json"), "--user", user]) == 0
    assert command(["verify", str(folder / "new" / "evidence.json"), "--user", "Ann-4 Solberg"]) == 1
    _after_erasure(folder, capsys)


def _after_erasure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The forgotten person's rows are erased from the table; the new run works on, with the same features."""
    new = open_run(folder / "new")
    before = new.data()[0]
    write_table(folder / "houses.csv", without="Ann-3 Solberg")
    after = open_run(folder / "new").data()[0]
    assert after.digest() == before.digest()
    assert document(capsys, "plan", folder / "new", "--user", "Ann-5 Solberg")["size"] == 5
    document(
        capsys,
        "select",
        folder / "new",
        "--how",
        "user",
        "--user",
        "Ann-5 Solberg",
        "--out",
        folder / "seven.json",
    )
    document(capsys, "audit", folder / "new", "--forget", folder / "seven.json")
    assert command(["plan", str(folder / "new"), "--user", "Ann-3 Solberg"]) == 2
    assert "must hold training examples of 'Ann-3 Solberg'; it holds none" in capsys.readouterr().err


def test_a_request_needs_ids_or_a_person(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ("--user", "Ann-4 Solberg", "--ids", str(folder / "none.csv"))
    for options, words in (((), "got neither"), (both, "got both"), (("--user", "ann"), "no such person")):
        assert command(["plan", str(folder / "run"), *options]) == 2
        assert words in " ".join(capsys.readouterr().err.split())


def test_a_table_is_trained_by_an_import_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights that were trained elsewhere, with the same table and options: the same features."""
    write_table(folder / "houses.csv")
    imported = document(capsys, "import", "--data", folder / "houses.csv", "--model", "mlp", *TABLE,
                        "--option", "hidden=(16,)", "--weights", folder / "run" / "weights.safetensors",
                        "--out", folder / "imported")  # fmt: skip
    assert len(imported["checkpoints"]) == 1
    run, other = open_run(folder / "run"), open_run(folder / "imported")
    assert other.settings.table == run.settings.table
    assert other.data()[0].digest() == run.data()[0].digest()


def written(folder: Path) -> dict[str, bytes]:
    """Every file by its name, and beside signed evidence what its envelope holds."""
    files = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name, content in list(files.items()):
        if name.endswith("evidence.json") and b'"payload"' in content:
            files[f"{name}, payload"] = base64.b64decode(json.loads(content)["payload"])
    return files


def test_nothing_that_a_request_writes_names_anybody(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the person, nor the ids, nor the list's file name: in files, names and notes; but the private ledger."""
    run = shutil.copytree(folder / "run", tmp_path / "run", ignore=shutil.ignore_patterns(".request*"))
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(key)
    trained = open_run(run).clean[0].ids.tolist()
    listed = [name for name in trained if name > "house-0100"][:3]
    (tmp_path / "complaint-of-solberg.csv").write_text("\n".join(["id", *listed]) + "\n")
    people = sorted({int(name[-4:]) // 5 for name in trained} - {3})[:2]
    rows = [[f"house-{5 * person + i:04}" for i in range(5)] for person in people]
    requests = (
        (
            "run",
            "second",
            ["--user", f"Ann-{people[0]} Solberg", "--key", str(tmp_path / "key.pem")],
            rows[0],
        ),
        ("second", "third", ["--ids", str(tmp_path / "complaint-of-solberg.csv"), "--budget", "1"], listed),
        ("third", "fourth", ["--user", f"Ann-{people[1]} Solberg", "--method", "retrain"], rows[1]),
    )
    removed: list[str] = []
    for source, out, options, ids in requests:
        before = written(tmp_path / source)
        capsys.readouterr()
        told = ["forget", str(tmp_path / source), "--out", str(tmp_path / out), *options, "--no-relearning"]
        assert command(told) in (0, 3, 4)
        removed += ids
        secrets = [name.encode() for name in (*removed, "Solberg", "solberg", "complaint")]
        after = written(tmp_path / source)
        files = written(tmp_path / out) | {
            name: after[name] for name in after if before.get(name) != after[name]
        }
        assert len(files) > 10
        for name, content in files.items():
            path = Path(name.removesuffix(", payload"))
            if path.name in ("ledger.jsonl", "ledger-ids.json"):
                assert oct(path.stat().st_mode)[-3:] == "600", name
                assert any(secret in content for secret in secrets), "the ledger knows whom it is about"
                continue
            place = path.relative_to(tmp_path).as_posix().encode()
            assert not [secret for secret in secrets if secret in content or secret in place], name
        assert not [secret for secret in secrets if secret.decode() in capsys.readouterr().err]


def test_the_names_of_others_are_not_shown(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person that is unknown is reported without suggesting another one."""
    for arguments in (
        ("select", "--how", "user", "--user", "Ann-3 Solber", "--out", tmp_path / "set.json"),
        ("select", "--how", "user", "--user", "x", "--out", tmp_path / "set.json"),
        ("plan", "--user", "Ann-3 Solber"),
        ("forget", "--user", "nobody", "--out", tmp_path / "new"),
    ):
        capsys.readouterr()
        assert command([arguments[0], str(folder / "run"), *map(str, arguments[1:])]) == 2
        said = capsys.readouterr().err
        assert "Solberg" not in said
        assert said.count("error: ") == 1
