"""Ed25519 keys, and keyed hashes of what must stay private."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from remanence.errors import InputError


def public_hex(key: Ed25519PrivateKey) -> str:
    """The public key that belongs to a private one, as hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def fingerprint(public_key: str) -> str:
    """A short form of a public key, to compare by eye."""
    digest = hashlib.sha256(bytes.fromhex(public_key)).hexdigest()
    return " ".join(digest[i : i + 4] for i in range(0, 24, 4))


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Read an Ed25519 private key in PEM or OpenSSH format, without a passphrase."""
    content = key_file(path)
    wanted = f"{path} must be an Ed25519 private key (`openssl genpkey -algorithm ed25519 -out key.pem`)"
    try:
        load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in content else load_pem_private_key
        key = load(content, password=None)
    except TypeError:
        raise InputError(
            f"{path} must be a key without a passphrase; it has one. Nothing was changed."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        is_public = b"PUBLIC KEY" in content or content.startswith(b"ssh-")
        problem = "it is a public key" if is_public else "it cannot be read as one"
        raise InputError(f"{wanted}; {problem}. Nothing was changed.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{wanted}; it is another kind of key ({kind_of(key)}). Nothing was changed.")
    return key


def read_public_key(path: Path) -> str:
    """Read an Ed25519 public key in PEM or OpenSSH format; returns hexadecimal digits."""
    content = key_file(path)
    wanted = f"{path} must be an Ed25519 public key (`openssl pkey -in key.pem -pubout`)"
    try:
        key = (load_ssh_public_key if content.startswith(b"ssh-") else load_pem_public_key)(content)
    except (ValueError, UnsupportedAlgorithm):
        is_private = b"PRIVATE KEY" in content
        problem = (
            "it is a private key, which should stay with its owner"
            if is_private
            else "it cannot be read as one"
        )
        raise InputError(f"{wanted}; {problem}.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{wanted}; it is another kind of key ({kind_of(key)}).")
    return key.public_bytes_raw().hex()


def kind_of(key: object) -> str:
    """The algorithm of a key, for messages."""
    name = type(key).__name__.removesuffix("PrivateKey").removesuffix("PublicKey")
    return {"EllipticCurve": "EC", "_EllipticCurve": "EC", "ECP": "EC"}.get(name, name.strip("_"))


def hash_ids(ids: Sequence[int | str], salt: str) -> list[str]:
    """The keyed hash of each id. Without the salt, an id cannot be found by trying all possible ones."""
    return [hmac.new(bytes.fromhex(salt), str(example).encode(), "sha256").hexdigest() for example in ids]


def reference_of(salt: str) -> str:
    """The name of a request in evidence and messages: random, because the salt is."""
    return hash_ids(["the reference of this request"], salt)[0][:8]


def person_hmac(person: str, salt: str) -> str:
    """The keyed hash of a person; empty if the request is not for one."""
    return hash_ids([f"person {person}"], salt)[0] if person else ""


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def file_hmac(path: Path, salt: str) -> str:
    """The keyed hash of a file with ids in it: without the salt, its content cannot be guessed."""
    return hmac.new(bytes.fromhex(salt), path.read_bytes(), "sha256").hexdigest()


def key_file(path: Path) -> bytes:
    """The content of the file of a key."""
    if not path.is_file():
        raise InputError(f"{path} must be a key file; it is not there.")
    return path.read_bytes()
