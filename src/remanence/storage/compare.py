"""Compare two sealed folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.storage.folder import Folder, open_folder


def differences(a: Path, b: Path) -> dict[str, str]:
    """The files that differ between two folders, each with how; empty if all files are equal."""
    folder_a, folder_b = open_folder(a), open_folder(b)
    folder_a.verify()
    folder_b.verify()
    hashes_a, hashes_b = folder_a.files(), folder_b.files()
    result = {}
    for name in sorted(hashes_a.keys() | hashes_b.keys()):
        if name not in hashes_b:
            result[name] = f"only in {a}"
        elif name not in hashes_a:
            result[name] = f"only in {b}"
        elif hashes_a[name] != hashes_b[name]:
            result[name] = (
                _compare_arrays(folder_a, folder_b, name) if name.endswith(".safetensors") else "differs"
            )
    return result


def _compare_arrays(folder_a: Folder, folder_b: Folder, name: str) -> str:
    a, b = (folder.tensors(name.removesuffix(".safetensors")) for folder in (folder_a, folder_b))
    if a.keys() != b.keys() or any(a[key].shape != b[key].shape for key in a):
        return "holds other arrays"
    gaps = {key: _relative_difference(a[key], b[key]) for key in a}
    worst = max(gaps, key=lambda key: gaps[key])
    return f"differs by up to {gaps[worst]:.3g} (relative to the largest value), in {worst}"


def _relative_difference(a: NDArray[Any], b: NDArray[Any]) -> float:
    if a.size == 0 or a.dtype.kind not in "fiu":
        return 0.0
    scale = max(float(np.abs(a).max()), float(np.abs(b).max())) or 1.0
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) / scale
