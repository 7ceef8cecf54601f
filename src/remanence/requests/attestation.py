"""The evidence as an in-toto Statement, and the DSSE envelope that signs it.

Signed evidence is a DSSE envelope around the Statement. Unsigned evidence is the Statement alone, because an envelope
without a signature is not valid DSSE. The predicate of the Statement is the content of the evidence; its subjects are
the files of the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage
from jsonschema import Draft202012Validator
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, Signature, SSlibKey

from remanence.errors import DataError, RunFolderError
from remanence.requests.signing import public_hex
from remanence.storage.parsing import parse_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "urn:remanence:deletion-evidence:v1"
SCHEMA = "deletion-evidence-v1.schema.json"
SCHEME = "ed25519"
_ENVELOPE = {"payload", "payloadType", "signatures"}
_STATEMENT = {"_type", "subject", "predicateType", "predicate"}


def sign(content: Mapping[str, Any], key: Ed25519PrivateKey | None) -> dict[str, Any]:
    """The content with the key that signs it, its digest and, if there is a key, its signature.

    Everything but the entry `signature` is signed.
    """
    signer = None if key is None else {"scheme": SCHEME, "public_key": public_hex(key)}
    unsigned = {name: value for name, value in content.items() if name != "signature"} | {"signer": signer}
    unsigned["digest"] = _digest(unsigned)
    if key is None:
        return {**unsigned, "signature": None}
    envelope = Envelope(_statement(unsigned), PAYLOAD_TYPE, {})
    signature = envelope.sign(CryptoSigner(key))
    return {**unsigned, "signature": {"keyid": signature.keyid, "value": signature.signature}}


def serialize(document: Mapping[str, Any]) -> bytes:
    """The content of the file. There is only one way to write a document, so every changed byte is detected."""
    signature = document["signature"]
    payload = _statement(document)
    if signature is None:
        return payload + b"\n"
    return json.dumps(_envelope(payload, signature).to_dict(), indent=1, sort_keys=True).encode() + b"\n"


def parse(content: bytes, path: Path) -> dict[str, Any]:
    """The predicate of a Statement, in an envelope or not, and its `signature`; nothing is verified.

    Args:
        content: the bytes of the file.
        path: the file, for the message.
    """
    outer = _parse_object(content, path)
    if outer.get("remanence") == "evidence":
        raise DataError(f"{path} is evidence of an earlier version; this version reads in-toto Statements.")
    if "payload" not in outer and "_type" not in outer:
        raise DataError(f"{path} must be an evidence.json; it is another document.")
    if "payload" not in outer:
        return {**_predicate(outer, path), "signature": None}
    _refuse_unsigned(outer, _ENVELOPE, path)
    if outer["payloadType"] != PAYLOAD_TYPE:
        raise DataError(f"{path} must be an envelope with an in-toto Statement; it holds something else.")
    signatures = outer["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1 or not isinstance(signatures[0], dict):
        raise DataError(f"{path} must have exactly one signature. It was damaged or changed.")
    _refuse_unsigned(signatures[0], {"keyid", "sig"}, path)
    if not isinstance(signatures[0]["keyid"], str):
        raise DataError(f"{path} must name the key of its signature. It was damaged or changed.")
    try:
        envelope = Envelope.from_dict(outer)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise DataError(f"{path} is not a valid envelope. It was damaged or changed: {error}") from None
    (signature,) = envelope.signatures.values()
    predicate = _predicate(_parse_object(envelope.payload, path), path)
    return {**predicate, "signature": {"keyid": signature.keyid, "value": signature.signature}}


def digest_holds(document: Mapping[str, Any]) -> bool:
    """Whether the digest in the predicate is that of its other entries."""
    return bool(document["digest"] == _digest(document))


def signature_holds(document: Mapping[str, Any]) -> bool:
    """Whether the envelope was signed with the key that the predicate names."""
    signature, signer = document["signature"], document["signer"]
    if signature is None or signer is None:
        return False
    try:
        key = SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer["public_key"])))
        _envelope(_statement(document), signature).verify([key], 1)
    except (VerificationError, ValueError):
        return False
    return True


@cache
def schema() -> dict[str, Any]:
    """The published JSON schema of the predicate."""
    content: dict[str, Any] = json.loads(files("remanence.requests").joinpath(SCHEMA).read_text("utf-8"))
    return content


def _predicate(statement: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The predicate of a Statement whose form, type, schema and subjects are as expected."""
    _refuse_unsigned(statement, _STATEMENT, path)
    try:
        Statement.copy_from_pb(ParseDict(dict(statement), StatementMessage())).validate()
    except (ParseError, ValueError) as error:
        raise DataError(
            f"{path} is not a valid in-toto Statement. It was damaged or changed: {error}"
        ) from None
    if statement["predicateType"] != PREDICATE_TYPE:
        raise DataError(
            f"{path} must be evidence of a deletion request; it is a Statement about something else."
        )
    predicate: dict[str, Any] = statement["predicate"]
    problem = next(_validator().iter_errors(predicate), None)
    if problem is not None:
        place = ".".join(map(str, problem.absolute_path)) or "the predicate"
        raise DataError(f"{path} has an unexpected or missing value in {place}. It was damaged or changed.")
    if statement["subject"] != _subjects(predicate):
        raise DataError(
            f"{path} must have the files of the model as its subjects. It was damaged or changed."
        )
    return predicate


def _statement(document: Mapping[str, Any]) -> bytes:
    """The bytes that the signature covers: sorted keys, no spaces, UTF-8."""
    predicate = {name: value for name, value in document.items() if name != "signature"}
    subjects = [ResourceDescriptor(**subject).pb for subject in _subjects(document)]
    statement = Statement(subjects, PREDICATE_TYPE, {"digest": document["digest"]})
    statement.validate()
    # protobuf holds every number as a double; the predicate is written as it is
    return _canonical(MessageToDict(statement.pb) | {"predicate": predicate})


def _subjects(predicate: Mapping[str, Any]) -> list[dict[str, Any]]:
    digests = predicate["model"]["after"]["files"]
    return [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())]


def _envelope(payload: bytes, signature: Mapping[str, str]) -> Envelope:
    keyid = signature["keyid"]
    return Envelope(payload, PAYLOAD_TYPE, {keyid: Signature(keyid, signature["value"])})


def _digest(content: Mapping[str, Any]) -> str:
    covered = {name: value for name, value in content.items() if name not in ("digest", "signature")}
    return hashlib.sha256(_canonical(covered)).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _parse_object(content: bytes, path: Path) -> dict[str, Any]:
    try:
        value = parse_json(content, path)
    except RunFolderError as error:
        raise DataError(f"{path} must be an evidence.json. It was damaged or changed: {error}") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} must be an evidence.json; it is another document.")
    return value


def _refuse_unsigned(table: Mapping[str, Any], names: set[str], path: Path) -> None:
    """Refuse entries that no signature covers, and missing ones."""
    if extra := sorted(table.keys() - names):
        raise DataError(
            f"{path} has an entry that is not part of evidence, {extra[0][:40]!r}. It was changed."
        )
    if missing := sorted(names - table.keys()):
        raise DataError(f"{path} must be an evidence.json; it lacks {missing[0]!r}.")


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(schema())
