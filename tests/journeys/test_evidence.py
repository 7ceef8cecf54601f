"""Evidence as an auditor gets it: every changed byte is found, other tools accept it, and it names nobody."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from remanence.cli.main import run as command
from remanence.data import digits
from remanence.errors import DataError
from remanence.requests import read_evidence, read_public_key, verify_evidence
from remanence.requests.attestation import parse, serialize, sign
from remanence.requests.evidence_page import render_page
from remanence.storage import SEAL, open_folder, seal_in_place

Captured = pytest.CaptureFixture[str]
IDS = digits()[0].ids


@pytest.fixture
def place(carried_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a carried-out request; also the current folder."""
    monkeypatch.chdir(shutil.copytree(carried_out, tmp_path / "place"))
    return Path()


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def refused(capsys: Captured, *arguments: object) -> str:
    """Run a command that must be refused, in one sentence, and change nothing; that sentence."""
    before = contents(Path())
    capsys.readouterr()
    assert command([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert "Traceback" not in said
    assert contents(Path()) == before
    return " ".join(said[said.index("error: ") :].split())


def payload(path: Path) -> dict[str, Any]:
    statement: dict[str, Any] = json.loads(base64.b64decode(json.loads(path.read_text())["payload"]))
    return statement


def payload_bytes(path: Path) -> bytes:
    return base64.b64decode(json.loads(path.read_text())["payload"])


def replaced(path: Path, edit: Callable[[str], str]) -> bytes:
    """The envelope with an edited payload and the old signature."""
    envelope = json.loads(path.read_text())
    text = edit(base64.b64decode(envelope["payload"]).decode())
    return json.dumps(envelope | {"payload": base64.b64encode(text.encode()).decode()}).encode()


# ---------------------------------------------------------------- changes


def is_valid(path: Path, public_key: str) -> bool:
    try:
        return all(check.holds for check in verify_evidence(path, public_key=public_key))
    except DataError:
        return False


def test_one_flipped_byte_anywhere_is_found(place: Path) -> None:
    """In the envelope, the page, the model and every other file that the evidence covers, whoever seals it again."""
    new, evidence = place / "new", place / "new" / "evidence.json"
    public_key = read_public_key(place / "key.pub")
    assert is_valid(evidence, public_key)
    after = read_evidence(evidence)["model"]["after"]
    sealed = open_folder(new).files()
    for name in ("evidence.json", "evidence.html", *after["files"], *after["keyed_files"]):
        content = (new / name).read_bytes()
        for at in np.unique(np.linspace(0, len(content) - 1, 40).round().astype(int)):
            (new / name).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            seal_in_place(new, "training", sealed)
            assert not is_valid(evidence, public_key), (name, at)
        (new / name).write_bytes(content)
    seal_in_place(new, "training", sealed)
    assert is_valid(evidence, public_key)


CHANGES: dict[str, Callable[[Path], bytes]] = {
    "extra in the signature": lambda path: path.read_bytes().replace(b'"keyid"', b'"more": 1, "keyid"'),
    "extra in the envelope": lambda path: path.read_bytes().replace(b'"payload"', b'"more": 1, "payload"'),
    "upper": lambda path: path.read_bytes().replace(b'"keyid": "', b'"keyid": "A'),
    "space": lambda path: path.read_bytes() + b" ",
    "layout": lambda path: json.dumps(json.loads(path.read_text())).encode(),
    "nan": lambda path: replaced(path, lambda text: re.sub(r'"reached":(true|false)', '"reached":NaN', text)),
    "surrogate": lambda path: replaced(path, lambda text: text.replace('"made":"', '"made":"\\ud800')),
    "types": lambda path: replaced(path, lambda text: json.dumps(json.loads(text) | {"predicate": {"model": []}})),
    "twice in the payload": lambda path: replaced(path, lambda text: text.replace('"made":', '"made":"x","made":')),
    "twice in the envelope": lambda path: path.read_bytes().replace(b'"payload":', b'"payload": "e30=", "payload":'),
    "without the envelope": lambda path: json.dumps(payload(path)).encode(),
    "subject": lambda path: replaced(path, lambda text: text.replace("weights.safetensors", "other.safetensors")),
    "outcome": lambda path: replaced(path, lambda text: re.sub('"outcome":"[^"]*"', '"outcome":"retrained"', text)),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_verify_notices_every_change_and_never_shows_a_traceback(
    change: str, place: Path, capsys: Captured
) -> None:
    path = place / "new" / "evidence.json"
    before = path.read_bytes()
    path.write_bytes(CHANGES[change](path))
    assert path.read_bytes() != before
    if change in ("outcome", "subject", "nan", "surrogate", "types", "twice in the payload"):
        assert payload_bytes(path) != base64.b64decode(json.loads(before)["payload"])
    assert command(["verify", str(path), "--public-key", "key.pub"]) in (1, 2)
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert "outcome" not in said.out, "what a changed document says is worth nothing"


def test_the_page_belongs_to_the_signed_content(place: Path) -> None:
    page, document = place / "new" / "evidence.html", read_evidence(place / "new" / "evidence.json")
    assert page.read_text() == render_page(document, document["signer"]["public_key"])
    page.write_text(page.read_text().replace("Results", "Triumphs"))
    assert command(["verify", "new/evidence.json", "--public-key", "key.pub"]) == 1


def test_the_outcome_is_the_title_and_nothing_without_a_comparison_is_shown(place: Path) -> None:
    document = read_evidence(place / "new" / "evidence.json")
    page = (place / "new" / "evidence.html").read_text()
    assert f"<title>Evidence of a deletion request: {document['outcome']}</title>" in page
    for row in document["audit"]:
        assert (f"<b>{row['metric']}</b>" in page) == (row["verdict"] != "unknown"), row["metric"]
    assert "no reference value" not in page
    headings = re.findall(r"<h2>([^<]*)</h2>", page)
    expected = ["Scope", "Method", "Results", "Limitations", "Remaining artifacts", "Signature"]
    assert [heading for heading in headings if heading in expected][:6] == expected
    assert "EDPB Opinion 28/2024" in page
    assert "Art. 5(2)" in page


# ---------------------------------------------------------------- other tools

WITH_SECURESYSTEMSLIB = """
import hashlib, json, pathlib, sys
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
envelope = Envelope.from_dict(json.load(open("new/evidence.json")))
envelope.verify([SSlibKey.from_crypto(load_pem_public_key(open("key.pub", "rb").read()))], 1)
statement = json.loads(envelope.payload)
"""
WITH_CRYPTOGRAPHY = """
import base64, hashlib, json, pathlib, sys
from cryptography.hazmat.primitives.serialization import load_pem_public_key
envelope = json.load(open("new/evidence.json"))
payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
pae = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
(signature,) = envelope["signatures"]
load_pem_public_key(open("key.pub", "rb").read()).verify(base64.b64decode(signature["sig"]), pae)
statement = json.loads(payload)
assert not any(name.startswith("securesystemslib") for name in sys.modules)
"""
THEN = """
for subject in statement["subject"]:
    content = pathlib.Path("new", subject["name"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == subject["digest"]["sha256"], subject["name"]
assert hashlib.sha256(open("new/evidence.html", "rb").read()).hexdigest() == statement["predicate"]["page_sha256"]
assert not any(name.startswith("remanence") for name in sys.modules)
print(statement["predicate"]["outcome"])
"""


@pytest.mark.parametrize("program", [WITH_SECURESYSTEMSLIB, WITH_CRYPTOGRAPHY])
def test_another_verifier_accepts_it(program: str, place: Path) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", "-c", program + THEN], capture_output=True, text=True, check=False
        )

    outcome = read_evidence(place / "new" / "evidence.json")["outcome"]
    assert run().stdout == f"{outcome}\n"
    weights = place / "new" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    assert run().returncode == 1


# ---------------------------------------------------------------- bad input


def test_evidence_that_does_not_belong_here_is_refused(place: Path, capsys: Captured) -> None:
    path = place / "new" / "evidence.json"
    known = ["--public-key", "key.pub"]
    assert "another model than the one in run" in refused(capsys, "verify", path, "--run", "run", *known)
    text = path.read_text()
    path.write_text(text.replace('"payload":', '"payload": "e30=", "payload":'))
    assert "damaged or changed" in refused(capsys, "verify", path, *known)
    path.write_text(text.replace('"payload":', '"approved": true, "payload":'))
    assert "not part of evidence, 'approved'" in refused(capsys, "verify", path, *known)


def test_a_signature_is_nobodys_without_the_public_key(place: Path, capsys: Captured) -> None:
    path, stranger = place / "new" / "evidence.json", Ed25519PrivateKey.generate()
    document = read_evidence(path)
    assert "which can be anybody's: give --public-key" in refused(capsys, "verify", path)
    capsys.readouterr()
    assert command(["verify", str(path), "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert said["holds"] is False
    assert said["outcome"] is None
    forged = sign(document | {"outcome": "retrained"}, stranger)
    path.write_bytes(serialize(forged | {"page_sha256": document["page_sha256"]}))
    seal_in_place(place / "new", "training", open_folder(place / "new").files())
    assert command(["verify", str(path)]) in (1, 2)
    assert command(["verify", str(path), "--public-key", "key.pub"]) == 1
    # signed by one key, naming another
    path.write_bytes(serialize(sign(document, stranger) | {"signer": document["signer"]}))
    assert command(["verify", str(path), "--public-key", "key.pub"]) == 1
    assert command(["verify", str(path)]) == 1


def pem(key: Any, password: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    content: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return content


def test_a_key_of_the_wrong_kind_is_refused_before_anything_is_done(place: Path, capsys: Captured) -> None:
    good = Ed25519PrivateKey.generate()
    public = good.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    wrong = {
        "another kind of key (RSA)": pem(rsa.generate_private_key(65537, 2048)),
        "another kind of key (EC)": pem(ec.generate_private_key(ec.SECP256R1())),
        "without a passphrase": pem(good, b"secret"),
        "it is a public key": public,
        "cannot be read as one": b"garbage",
    }
    for words, content in wrong.items():
        Path("wrong.pem").write_bytes(content)
        for arguments in (
            ("forget", "new", "--ids", "set.json", "--out", "third", "--key", "wrong.pem"),
            ("purge", "new", "--erase", "run", "--yes", "--key", "wrong.pem"),
        ):
            assert words in refused(capsys, *arguments)
    Path("wrong.pem").write_bytes(pem(good))
    assert "it is a private key" in refused(
        capsys, "verify", "new/evidence.json", "--public-key", "wrong.pem"
    )
    assert "another key" in refused(capsys, "purge", "new", "--erase", "run", "--yes", "--key", "wrong.pem")


def test_ids_are_verified_also_where_some_were_skipped(place: Path, capsys: Captured) -> None:
    asked = [*IDS[200:230].tolist(), *IDS[20:22].tolist(), 999_999_001, 999_999_002]
    Path("list.csv").write_text("id\n" + "".join(f"{example}\n" for example in asked))
    skip = ["--unknown", "skip", "--already-removed", "skip", "--no-relearning"]
    assert command(["forget", "new", "--ids", "list.csv", "--out", "third", *skip]) in (0, 3, 4)
    assert sum(read_evidence("third/evidence.json")["request"]["skipped"].values()) == 4
    assert command(["verify", "third/evidence.json", "--ids", "list.csv"]) == 0
    for other in (asked[1:], [*asked, 999_999_003], [*asked[:-1], asked[0]]):
        Path("other.csv").write_text("id\n" + "".join(f"{example}\n" for example in other))
        assert command(["verify", "third/evidence.json", "--ids", "other.csv"]) == 1
    assert command(["verify", "third/evidence.json", "--user", "ann"]) == 1
    assert "is not a file" in refused(capsys, "verify", "third/evidence.json", "--ids", "missing.csv")


# ---------------------------------------------------------------- whom it names


def test_no_integer_below_a_million_is_found_from_the_evidence(place: Path) -> None:
    """Hashes of every guess, plain and keyed with what the evidence itself contains, beside every digest in it."""
    document = read_evidence(place / "new" / "evidence.json")
    asked = set((place / "request.csv").read_text().split()[1:])
    assert all(int(example) < 10**6 for example in asked)
    text = json.dumps(document)
    digests = {bytes.fromhex(digest) for digest in re.findall(r"\b[0-9a-f]{64}\b", text)}
    assert len(digests) > len(asked)
    key = document["request"]["reference"].encode()
    for guess in range(10**6):
        name = str(guess).encode()
        assert digests.isdisjoint(
            (
                hashlib.sha256(name).digest(),
                hashlib.sha256(b"id\n%b\n" % name).digest(),
                hmac.digest(b"", name, "sha256"),
                hmac.digest(key, name, "sha256"),
            )
        ), guess


def test_unsigned_evidence_is_a_statement_without_an_envelope(place: Path, capsys: Captured) -> None:
    document = sign(read_evidence(place / "new" / "evidence.json"), None)
    statement = json.loads(serialize(document))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicate"]["signer"] is None
    assert parse(serialize(document), Path("evidence.json")) == document
    assert {SEAL, "evidence.json"} <= {path.name for path in (place / "new").iterdir()}


# ---------------------------------------------------------------- a second signature (the real one: tests/adapters)


def test_the_model_signature_is_sealed_and_needs_its_package(
    place: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [
        "forget",
        "new",
        "--ids",
        "set.json",
        "--out",
        "third",
        "--no-relearning",
        "--model-key",
        "ec.pem",
    ]
    Path("ec.pem").write_bytes(pem(ec.generate_private_key(ec.SECP256R1())))
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        assert "needs the package model_signing" in refused(capsys, *told)
    signed: list[str] = []

    def sign_model(folder: Path, key: Path, files: dict[str, str]) -> list[str]:
        signed.extend(files)
        (folder / "model.sig").write_text("signed")
        return ["model.sig"]

    monkeypatch.setattr("remanence.requests.request.check_model_key", lambda key: None)
    monkeypatch.setattr("remanence.requests.forget_request.sign_model", sign_model)
    assert command(told) in (0, 3, 4)
    assert "model.sig" in open_folder("third").files()
    assert set(signed) == {"weights.safetensors", "measurements.jsonl"}
