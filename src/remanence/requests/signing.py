"""Canonical bytes of a document, its digest, and its Ed25519 signature."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from remanence.errors import InputError

ALGORITHM = "Ed25519"
_NOT_SIGNED = ("digest", "signature")


def canonical(document: Mapping[str, Any]) -> bytes:
    """The bytes that digest and signature cover: sorted keys, no spaces, UTF-8."""
    content = {key: value for key, value in document.items() if key not in _NOT_SIGNED}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def serialize(document: Mapping[str, Any]) -> bytes:
    """The content of the file. There is only one way to write a document, so every changed byte is detected."""
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def sign(document: Mapping[str, Any], key: Ed25519PrivateKey | None) -> dict[str, Any]:
    """The document with its digest and, if there is a key, its signature."""
    content = canonical(document)
    signature = None
    if key is not None:
        public = key.public_key().public_bytes_raw()
        signature = {"algorithm": ALGORITHM, "public_key": public.hex(), "value": key.sign(content).hex()}
    return {**document, "digest": hashlib.sha256(content).hexdigest(), "signature": signature}


def digest_holds(document: Mapping[str, Any]) -> bool:
    return bool(document.get("digest") == hashlib.sha256(canonical(document)).hexdigest())


def is_signature(value: Any) -> bool:
    """Whether a value is None or a signature block exactly as `sign` writes it: nothing more, nothing else."""
    if value is None:
        return True
    return (
        isinstance(value, dict)
        and value.keys() == {"algorithm", "public_key", "value"}
        and value["algorithm"] == ALGORITHM
        and _is_hex(value["public_key"], 32)
        and _is_hex(value["value"], 64)
    )


def signature_holds(document: Mapping[str, Any]) -> bool:
    """Whether the signature was made with the key that the document names."""
    signature = document["signature"]
    if signature is None or not is_signature(signature):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
        key.verify(bytes.fromhex(signature["value"]), canonical(document))
    except (InvalidSignature, ValueError):
        return False
    return True


def _is_hex(value: Any, size: int) -> bool:
    return isinstance(value, str) and len(value) == 2 * size and not set(value) - set("0123456789abcdef")


def fingerprint(public_key: str) -> str:
    """A short form of a public key, to compare by eye."""
    digest = hashlib.sha256(bytes.fromhex(public_key)).hexdigest()
    return " ".join(digest[i : i + 4] for i in range(0, 24, 4))


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Read an Ed25519 private key in PEM or OpenSSH format, without a passphrase."""
    content = _key_file(path)
    try:
        load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in content else load_pem_private_key
        key = load(content, password=None)
    except TypeError:
        raise InputError(
            f"{path} must be a key without a passphrase; it has one. Nothing was changed."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(
            f"{path} must be an Ed25519 private key (`openssl genpkey -algorithm ed25519 -out key.pem`); "
            "it cannot be read as one. Nothing was changed."
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} must be an Ed25519 key; it is another kind. Nothing was changed.")
    return key


def read_public_key(path: Path) -> str:
    """Read an Ed25519 public key in PEM or OpenSSH format; returns hexadecimal digits."""
    content = _key_file(path)
    try:
        key = (load_ssh_public_key if content.startswith(b"ssh-") else load_pem_public_key)(content)
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(
            f"{path} must be an Ed25519 public key (`openssl pkey -in key.pem -pubout`); it cannot be read as one."
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{path} must be an Ed25519 key; it is another kind.")
    return key.public_bytes_raw().hex()


def hash_ids(ids: Sequence[int | str], salt: str) -> list[str]:
    """The keyed hash of each id. Without the salt, an id cannot be found by trying all possible ones."""
    return [hmac.new(bytes.fromhex(salt), str(example).encode(), "sha256").hexdigest() for example in ids]


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def file_hmac(path: Path, salt: str) -> str:
    """The keyed hash of a file with ids in it: without the salt, its content cannot be guessed."""
    return hmac.new(bytes.fromhex(salt), path.read_bytes(), "sha256").hexdigest()


def _key_file(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(f"{path} must be a key file; it is not there.")
    return path.read_bytes()
