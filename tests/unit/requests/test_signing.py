"""Signatures and hidden ids: every byte counts, and a wrong key is named as such."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from remanence.errors import DataError, InputError
from remanence.requests.attestation import digest_holds, parse, serialize, sign, signature_holds
from remanence.requests.signing import (
    hash_ids,
    person_hmac,
    public_hex,
    read_private_key,
    read_public_key,
    reference_of,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
FILE = Path("evidence.json")
HASH = "ab" * 32
REQUEST = {
    "reference": "1234abcd",
    "asked_by": "Ünal & Co",
    "size": 1,
    "skipped": {},
    "ids": {"how": "HMAC", "values": []},
}
AFTER = {"weights": HASH, "files": {"weights.safetensors": HASH}, "keyed_files": {}}
PLAN = {
    "forecast": {"steps": 2.5, "low": 0.0, "high": None, "coverage": 0.9},
    "criterion": {"sentence": "It holds."},
    "caveats": [],
    "expected_if_never_trained_on": None,
}
ACTUAL = {
    "reached": True,
    "steps": 2.0,
    "stopped_at": 3,
    "budget": 2**60 + 1,
    "costs": [],
    "criterion": None,
    "verdict": {"word": "confirmed", "sentence": "It is.", "signals": []},
}
CONTENT = {
    "version": "0", "made": "today", "outcome": "forgotten", "outcome_meaning": "It is.", "plan": PLAN,
    "actual": ACTUAL, "request": REQUEST | {"person_hmac": "", "list_hmac": ""},
    "method": {"name": "finetune", "options": {}, "seed": 0}, "audit": [], "not_measured": [],
    "model": {"before": {"weights": HASH}, "after": AFTER},
    "bounds": [], "ledger": [], "remaining_artifacts": [], "erased": [], "supersedes": None, "disclosure": "Much.",
    "versions": {}, "page_sha256": HASH,
}  # fmt: skip


@pytest.mark.parametrize("key", [KEY, None])
def test_every_changed_byte_is_noticed(key: Ed25519PrivateKey | None) -> None:
    whole = serialize(sign(CONTENT, key))
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        try:
            document = parse(bytes(changed), FILE)
        except DataError:
            continue
        same = bytes(changed) == serialize(document)
        holds = digest_holds(document) and (key is None or signature_holds(document))
        assert not (same and holds), place


def test_what_is_read_is_what_was_written() -> None:
    for key in (KEY, None):
        document = sign(CONTENT, key)
        assert parse(serialize(document), FILE) == document
        assert digest_holds(document)
        assert document["actual"]["budget"] == 2**60 + 1  # protobuf would have rounded it
    statement = json.loads(serialize(sign(CONTENT, None)))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": "weights.safetensors", "digest": {"sha256": HASH}}]


def test_a_signature_by_somebody_else_does_not_hold() -> None:
    signed = sign(CONTENT, KEY)
    forged = sign({**CONTENT, "made": "yesterday"}, Ed25519PrivateKey.generate())
    assert signature_holds(signed)
    assert not signature_holds({**forged, "signature": signed["signature"]})
    assert not signature_holds({**signed, "signature": forged["signature"]})
    assert forged["signer"]["public_key"] != signed["signer"]["public_key"]


def _envelope() -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(serialize(sign(CONTENT, KEY)))
    return envelope


def _with_payload(**changes: Any) -> dict[str, Any]:
    envelope = _envelope()
    statement = json.loads(base64.b64decode(envelope["payload"])) | changes
    return envelope | {"payload": base64.b64encode(json.dumps(statement).encode()).decode()}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda: _envelope() | {"note": "approved"}, "not part of evidence, 'note'"),
        (lambda: _envelope() | {"signatures": []}, "exactly one signature"),
        (lambda: _envelope() | {"signatures": _envelope()["signatures"] * 2}, "exactly one signature"),
        (lambda: _envelope() | {"signatures": [{"sig": "AA==", "keyid": 1}]}, "name the key"),
        (lambda: _envelope() | {"signatures": [{"sig": 1, "keyid": "a"}]}, "not a valid envelope"),
        (lambda: _envelope() | {"signatures": [{"sig": "AA==", "keyid": "a", "x": 1}]}, "not part of evidence, 'x'"),
        (lambda: _envelope() | {"payloadType": "text/plain"}, "it holds something else"),
        (lambda: _envelope() | {"payload": 5}, "not a valid envelope"),
        (lambda: _envelope() | {"payload": "{}"}, "not a valid envelope"),
        (lambda: _with_payload(note=1), "not part of evidence, 'note'"),
        (lambda: _with_payload(subject=[]), "At least one subject"),
        (lambda: _with_payload(subject=[{"name": "x", "digest": {"sha256": HASH}}]), "files of the model"),
        (lambda: _with_payload(predicateType="urn:other"), "about something else"),
        (lambda: _with_payload(predicate={"outcome": "forgotten"}), "the predicate"),
        (lambda: _with_payload(predicate=[]), "not a valid in-toto Statement"),
        (lambda: {"remanence": "evidence", "format": 4}, "an earlier version"),
        (lambda: {"payload": "e30="}, "lacks 'payloadType'"),
    ],
)  # fmt: skip
def test_a_changed_envelope_is_refused_in_one_sentence(changed: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        parse(json.dumps(changed()).encode(), FILE)


def test_repeated_keys_are_refused() -> None:
    text = serialize(sign(CONTENT, KEY)).decode()
    for twice in (
        text.replace('"payloadType"', '"payload": "e30=", "payloadType"'),
        "{" + text.strip()[1:-1] + "," + text.strip()[1:],
    ):
        with pytest.raises(DataError, match="damaged or changed"):
            parse(twice.encode(), FILE)
    inside = serialize(sign(CONTENT, None)).decode().replace('"made":', '"made":"1999","made":')
    with pytest.raises(DataError, match="damaged or changed"):
        parse(inside.encode(), FILE)


_WITH_SECURESYSTEMSLIB = """
import json, sys
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
key = SSlibKey.from_crypto(load_pem_public_key(open(sys.argv[2], "rb").read()))
envelope = Envelope.from_dict(json.load(open(sys.argv[1])))
envelope.verify([key], 1)
print(json.loads(envelope.payload)["predicate"]["outcome"])
assert not any(name.startswith("remanence") for name in sys.modules)
"""
_WITH_CRYPTOGRAPHY = """
import base64, json, sys
from cryptography.hazmat.primitives.serialization import load_pem_public_key
envelope = json.load(open(sys.argv[1]))
payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
pae = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
key = load_pem_public_key(open(sys.argv[2], "rb").read())
(signature,) = envelope["signatures"]
key.verify(base64.b64decode(signature["sig"]), pae)
print(json.loads(payload)["predicate"]["outcome"])
assert not any(name.startswith(("remanence", "securesystemslib")) for name in sys.modules)
"""


@pytest.mark.parametrize("program", [_WITH_SECURESYSTEMSLIB, _WITH_CRYPTOGRAPHY])
def test_another_verifier_accepts_it_without_remanence(program: str, tmp_path: Path) -> None:
    evidence, key = tmp_path / "evidence.json", tmp_path / "key.pub"
    evidence.write_bytes(serialize(sign(CONTENT, KEY)))
    key.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    command = [sys.executable, "-I", "-c", program, str(evidence), str(key)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "forgotten\n"
    evidence.write_bytes(serialize(sign(CONTENT, Ed25519PrivateKey.generate())))
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize(
    ("encoding", "form"), [(Encoding.PEM, PrivateFormat.PKCS8), (Encoding.PEM, PrivateFormat.OpenSSH)]
)
def test_keys_are_read_in_both_forms(tmp_path: Path, encoding: Encoding, form: PrivateFormat) -> None:
    (tmp_path / "key").write_bytes(KEY.private_bytes(encoding, form, NoEncryption()))
    read = read_private_key(tmp_path / "key")
    public = KEY.public_key()
    for number, (shape, kind) in enumerate(
        [(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), (Encoding.OpenSSH, PublicFormat.OpenSSH)]
    ):
        (tmp_path / f"{number}.pub").write_bytes(public.public_bytes(shape, kind))
        assert read_public_key(tmp_path / f"{number}.pub") == public_hex(read)


def _pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8, password: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    content: bytes = key.private_bytes(Encoding.PEM, form, encryption)
    return content


def _public_pem(key: Any) -> bytes:
    content: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return content


EC_KEY, RSA_KEY = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_pem(Ed448PrivateKey.generate()), r"another kind of key \(Ed448\)"),
        (_pem(RSA_KEY), r"another kind of key \(RSA\)"),
        (_pem(EC_KEY), r"another kind of key \(EC\)"),
        (_pem(RSA_KEY, PrivateFormat.OpenSSH), r"another kind of key \(RSA\)"),
        (_pem(KEY, password=b"secret"), "passphrase"),
        (_public_pem(KEY), "it is a public key"),
        (KEY.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), "it is a public key"),
        (b"not a key", "cannot be read as one"),
        (b"", "cannot be read as one"),
        (_pem(KEY)[:60], "cannot be read as one"),
    ],
)
def test_a_private_key_that_does_not_fit_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_private_key(tmp_path / "key")
    with pytest.raises(InputError, match="not there"):
        read_private_key(tmp_path / "no")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_public_pem(EC_KEY), r"another kind of key \(EC\)"),
        (_public_pem(RSA_KEY), r"another kind of key \(RSA\)"),
        (_pem(KEY), "it is a private key"),
        (b"not a key", "cannot be read as one"),
        (b"ssh-ed25519 AAAA", "cannot be read as one"),
    ],
)
def test_a_public_key_that_does_not_fit_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_public_key(tmp_path / "key")


def test_ids_and_persons_are_hidden_by_the_salt() -> None:
    one, other = hash_ids([1, 2, "ann"], "00ff"), hash_ids([1, 2, "ann"], "00fe")
    assert one == hash_ids([1, 2, "ann"], "00ff")
    assert not set(one) & set(other)
    assert person_hmac("ann", "00ff") not in one
    assert person_hmac("", "00ff") == ""
    assert reference_of("00ff") != reference_of("00fe")
