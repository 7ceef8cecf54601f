"""Where two sealed folders differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.storage.folder import Folder, open_folder


def differences(a: Path, b: Path) -> dict[str, str]:
    """File by file, what differs between two folders; empty when they hold the same bits."""
    one, other = open_folder(a), open_folder(b)
    one.verify()
    other.verify()
    ours, theirs = one.files(), other.files()
    found = {}
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            found[name] = f"only in {a}"
        elif name not in ours:
            found[name] = f"only in {b}"
        elif ours[name] != theirs[name]:
            found[name] = _tensors(one, other, name) if name.endswith(".safetensors") else "differs"
    return found


def _tensors(one: Folder, other: Folder, name: str) -> str:
    ours, theirs = (each.tensors(name.removesuffix(".safetensors")) for each in (one, other))
    if ours.keys() != theirs.keys() or any(ours[key].shape != theirs[key].shape for key in ours):
        return "holds other arrays"
    worst = max(ours, key=lambda key: _gap(ours[key], theirs[key]))
    return (
        f"differs by up to {_gap(ours[worst], theirs[worst]):.3g} (relative to the largest value), in {worst}"
    )


def _gap(a: NDArray[Any], b: NDArray[Any]) -> float:
    if a.size == 0 or a.dtype.kind not in "fiu":
        return 0.0
    scale = max(float(np.abs(a).max()), float(np.abs(b).max())) or 1.0
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) / scale
