"""A second signature of the model's files, by OpenSSF Model Signing, for tools that verify models that way."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from remanence.errors import InputError
from remanence.requests.signing import key_file, kind_of
from remanence.storage import SEAL

FILE = "model.sig"
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_PACKAGES = ("model_signing", "OpenSSL")
_LATER = {FILE, SEAL, "calibration", ".request.json", ".request.lock", ".purge.lock"}
"""What Remanence adds to the folder of a run afterwards."""


def check_model_key(path: Path) -> None:
    """Refuse a key that OpenSSF Model Signing does not take, and a missing package, before any work is done."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"`model_key` needs the package {missing[0]}, which is not installed: "
            "pip install 'remanence[model-signing]'. Nothing was changed."
        )
    wanted = f"{path} must be an EC private key in PEM format on one of the curves {', '.join(_CURVES)}"
    try:
        key = load_pem_private_key(key_file(path), password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        raise InputError(
            f"{wanted}, without a passphrase; it cannot be read as one. Nothing was changed."
        ) from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name not in _CURVES:
        raise InputError(f"{wanted}; it is another kind of key ({kind_of(key)}). Nothing was changed.")


def sign_model(folder: Path, key: Path, files: Collection[str]) -> list[str]:
    """Sign these files of a run folder; returns the name of the signature's file.

    The other files are left out, by name: they change later, or plain digests of them would let an id be guessed.

    Args:
        folder: the folder of the run.
        key: file of an EC private key.
        files: names of the files to sign.
    """
    from model_signing.hashing import Config as HashingConfig
    from model_signing.signing import Config as SigningConfig

    (folder / FILE).unlink(missing_ok=True)
    others = {entry.name for entry in folder.iterdir()} | _LATER
    ignored = [Path(name) for name in sorted(others - set(files))]
    hashing = HashingConfig().set_ignored_paths(paths=ignored, ignore_git_paths=False)
    signing = SigningConfig().use_elliptic_key_signer(private_key=key).set_hashing_config(hashing)
    signing.sign(folder, folder / FILE)
    return [FILE]
