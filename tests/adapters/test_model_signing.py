"""The model signed by OpenSSF Model Signing, verified by that package and by its command."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from remanence.cli.main import run as command
from remanence.requests import read_evidence, verify_evidence

verifying = pytest.importorskip(
    "model_signing.verifying",
    reason="the package model-signing is not installed (make test-adapters installs it)",
)


@pytest.fixture
def place(carried_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shutil.copytree(carried_out, tmp_path / "place"))
    key = ec.generate_private_key(ec.SECP256R1())
    Path("ec.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    Path("ec.pub").write_bytes(public)
    return Path().resolve()


@pytest.mark.filterwarnings("ignore")
def test_the_package_verifies_the_model(place: Path) -> None:
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
    assert command(told) in (0, 3, 4)
    model, signature = place / "third", place / "third" / "model.sig"
    assert all(check.holds for check in verify_evidence(model / "evidence.json")), "the run is sealed with it"
    config = verifying.Config().use_elliptic_key_verifier(public_key=place / "ec.pub")
    config.verify(model, signature)
    by_hand = [
        sys.executable,
        "-m",
        "model_signing",
        "verify",
        "key",
        str(model),
        "--signature",
        str(signature),
    ]
    by_hand += ["--public_key", str(place / "ec.pub")]
    assert subprocess.run(by_hand, capture_output=True, check=False).returncode == 0
    envelope = json.loads(signature.read_text())["dsseEnvelope"]
    resources = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["resources"]
    signed = {resource["name"]: resource["digest"] for resource in resources}
    assert signed == read_evidence(model / "evidence.json")["model"]["after"]["files"], (
        "no private file among them"
    )
    weights = model / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ValueError, match="mismatch"):
        config.verify(model, signature)
    assert subprocess.run(by_hand, capture_output=True, check=False).returncode != 0


def test_a_key_that_the_package_does_not_take_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Ed25519PrivateKey.generate()
    wrong = {
        "another kind of key (Ed25519)": other.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ),
        "another kind of key (EC)": ec.generate_private_key(ec.SECP256K1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ),
        "cannot be read as one": b"garbage",
    }
    for words, content in wrong.items():
        (place / "wrong.pem").write_bytes(content)
        capsys.readouterr()
        assert (
            command(["forget", "new", "--ids", "set.json", "--out", "third", "--model-key", "wrong.pem"]) == 2
        )
        assert words in " ".join(capsys.readouterr().err.split())
        assert not (place / "third").exists()
