"""Check this machine: versions, devices, half precision, threads, disk space, data sets and extras."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_LITTLE_SPACE = 2 * 1024**3
"""Free bytes below which a study or a data set may not fit."""
_CORE = ("torch", "numpy", "scipy", "scikit-learn", "safetensors")
_FOR_DEVELOPERS = ("dev", "docs")
_INTEGRATIONS = {
    "lightning": "the Lightning callback",
    "transformers": "the Hugging Face callback",
    "tensorboard": "export of studies to TensorBoard",
    "mlflow": "export of studies to MLflow",
}


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Args:
        topic: the part of the report that it belongs to.
        name: what was checked.
        value: the result.
        ok: whether everything that depends on it works.
        advice: what to do about it; empty when nothing needs to be done.
    """

    topic: str
    name: str
    value: str
    ok: bool = True
    advice: str = ""

    @property
    def essential(self) -> bool:
        """Whether nothing works without it: torch must be able to compute on the CPU."""
        return (self.topic, self.name) == ("device", "cpu")


def check_installation(data_dir: str | Path | None = None, *, measure: bool = False) -> list[Check]:
    """Check this machine; what torch can compute is tried in a separate process, once per machine and torch build.

    Args:
        data_dir: folder of the data sets; by default $REMANENCE_DATA, else a cache folder.
        measure: measure the constants that choose the fastest form of a gradient norm, and keep them for this machine
            and torch build.
    """
    from remanence.data import data_folder

    if measure:
        from remanence.gradients.form_timing import measure_norm_constants
        from remanence.machine import write_constants

        write_constants(measure_norm_constants())
    folder = data_folder(data_dir)
    return [*_versions(), *_computing(), *_disk(folder), *_data(folder), *_extras()]


def _versions() -> Iterator[Check]:
    yield Check("version", "python", sys.version.split()[0])
    for package in ("remanence", *_CORE):
        yield Check("version", package, metadata.version(package))


def _computing() -> Iterator[Check]:
    import torch

    from remanence.machine import check_machine, half_capabilities, norm_constants, usable_threads

    for device in check_machine().devices:
        yield Check("device", device.name, *_state(device.works, device.reason, "Use another device."))
    for half in half_capabilities():
        advice = "Use float32; or set ONEDNN_MAX_CPU_ISA to an older instruction set and run this again."
        yield Check("half precision", half.name, *_state(half.works, half.reason, advice))
    usable, used = usable_threads(), torch.get_num_threads()
    advice = f"Set OMP_NUM_THREADS={usable}." if used > usable else ""
    yield Check("threads", "usable", str(usable))
    yield Check("threads", "torch uses", str(used), used <= usable, advice)
    yield Check("gradient norms", "constants", norm_constants().label)


def _state(works: bool, reason: str, advice: str) -> tuple[str, bool, str]:
    return ("works", True, "") if works else (f"does not work: {reason}", False, advice)


def _disk(data: Path) -> Iterator[Check]:
    from remanence.machine import cache_folder

    for name, folder in {"here": Path.cwd(), "cache": cache_folder(), "data": data}.items():
        free = shutil.disk_usage(_existing(folder)).free
        enough = free >= _LITTLE_SPACE
        advice = "" if enough else f"Make room, or choose a folder on another disk than {folder}."
        yield Check("disk space", name, f"{free / 1024**3:.1f} GiB free for {folder}", enough, advice)


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def _data(folder: Path) -> Iterator[Check]:
    from remanence.data import SOURCES

    present = folder.is_dir()
    advice = "" if present else "Set REMANENCE_DATA; `remanence data list` shows where to get the data sets."
    yield Check("data", "folder", f"{folder} {'exists' if present else 'is missing'}", present, advice)
    for name, source in SOURCES.items():
        ready = source.present(folder)
        advice = "" if ready else f"Put the files from {source.home} into {folder / source.folders[0]}."
        yield Check("data", name, "ready" if ready else "missing", ready, advice)


def _extras() -> Iterator[Check]:
    for extra, packages in _packages_by_extra().items():
        missing = [package for package in packages if not _installed(package)]
        value = f"missing {', '.join(missing)}" if missing else "installed"
        advice = f"pip install 'remanence[{extra}]'" if missing else ""
        yield Check("extra", extra, value, not missing, advice)
    for package, purpose in _INTEGRATIONS.items():
        present = _installed(package)
        advice = "" if present else f"pip install {package}, for {purpose}"
        yield Check("extra", package, "installed" if present else "missing", present, advice)


def _packages_by_extra() -> dict[str, list[str]]:
    """The packages that each of our extras adds, from the installed metadata."""
    packages: dict[str, list[str]] = {}
    for requirement in metadata.requires("remanence") or ():
        match = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", requirement)
        if match and match[2] not in _FOR_DEVELOPERS:
            packages.setdefault(match[2], []).append(match[1])
    return packages


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
