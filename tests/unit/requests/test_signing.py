"""Signatures and hidden ids: every byte counts, and a wrong key is named as such."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from remanence.errors import InputError
from remanence.requests.signing import (
    digest_holds,
    hash_ids,
    read_private_key,
    read_public_key,
    serialize,
    sign,
    signature_holds,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
DOCUMENT = {"remanence": "evidence", "made": "today", "n": [1, 2.5, None], "name": "Ünal"}


def test_every_changed_byte_is_noticed() -> None:
    whole = serialize(sign(DOCUMENT, KEY))
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        try:
            document = json.loads(bytes(changed))
        except ValueError:
            continue
        same = bytes(changed) == serialize(document)
        assert not (same and digest_holds(document) and signature_holds(document)), place


def test_a_signature_by_somebody_else_does_not_hold() -> None:
    signed = sign(DOCUMENT, KEY)
    forged = sign({**DOCUMENT, "n": [9]}, Ed25519PrivateKey.generate())
    assert signature_holds(signed)
    assert not signature_holds({**forged, "signature": signed["signature"]})
    assert forged["signature"]["public_key"] != signed["signature"]["public_key"]


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
        assert read_public_key(tmp_path / f"{number}.pub") == read.public_key().public_bytes_raw().hex()


def test_a_key_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    other, locked, junk = tmp_path / "other", tmp_path / "locked", tmp_path / "junk"
    other.write_bytes(
        Ed448PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    locked.write_bytes(
        KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    junk.write_text("not a key")
    for path, words in (
        (other, "another kind"),
        (locked, "passphrase"),
        (junk, "Ed25519"),
        (tmp_path / "no", "not there"),
    ):
        with pytest.raises(InputError, match=words):
            read_private_key(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_public_key(junk)


def test_ids_are_hidden_by_the_salt() -> None:
    one, other = hash_ids([1, 2, "ann"], "00ff"), hash_ids([1, 2, "ann"], "00fe")
    assert one == hash_ids([1, 2, "ann"], "00ff")
    assert not set(one) & set(other)
