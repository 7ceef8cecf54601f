"""`remanence doctor`."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="doctor")
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
class Finding:
    """One line of the report.

    Args:
        topic: the part of the report it belongs to.
        name: what was looked at.
        value: what was found.
        ok: whether everything that uses it works.
        advice: what to do about it; empty when nothing needs to be done.
    """

    topic: str
    name: str
    value: str
    ok: bool = True
    advice: str = ""


@app.default
def doctor(*, data_dir: Path | None = None, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Check this machine: versions, devices, half precision, threads, disk space, data folder and extras.

    What torch can compute is tried in a separate process, once per machine and torch build. Exit code 1 when torch
    cannot compute on the CPU at all.

    Example:

    `remanence doctor`

    `remanence doctor --json | python -m json.tool`

    Parameters
    ----------
    data_dir:
        Folder of the data sets; $REMANENCE_DATA, else ~/.cache/remanence.
    json:
        Print one JSON document.
    """
    from remanence.data import data_folder

    folder = data_folder(data_dir)
    findings = [*_versions(), *_computing(), *_disk(folder), *_data(folder), *_extras()]
    if json:
        console.print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    if not all(finding.ok for finding in findings if (finding.topic, finding.name) == ("device", "cpu")):
        sys.exit(1)


def _versions() -> Iterator[Finding]:
    yield Finding("version", "python", sys.version.split()[0])
    for package in ("remanence", *_CORE):
        yield Finding("version", package, metadata.version(package))


def _computing() -> Iterator[Finding]:
    import torch

    from remanence.machine import check_machine, half_capabilities, usable_threads

    for device in check_machine().devices:
        yield Finding("device", device.name, *_state(device.works, device.reason, "Use another device."))
    for half in half_capabilities():
        advice = "Use float32; or set ONEDNN_MAX_CPU_ISA to an older instruction set and run this again."
        yield Finding("half precision", half.name, *_state(half.works, half.reason, advice))
    usable, used = usable_threads(), torch.get_num_threads()
    advice = f"Set OMP_NUM_THREADS={usable}." if used > usable else ""
    yield Finding("threads", "usable", str(usable))
    yield Finding("threads", "torch uses", str(used), used <= usable, advice)


def _state(works: bool, reason: str, advice: str) -> tuple[str, bool, str]:
    return ("works", True, "") if works else (f"does not work: {reason}", False, advice)


def _disk(data: Path) -> Iterator[Finding]:
    from remanence.machine import cache_folder

    for name, folder in {"here": Path.cwd(), "cache": cache_folder(), "data": data}.items():
        free = shutil.disk_usage(_existing(folder)).free
        enough = free >= _LITTLE_SPACE
        advice = "" if enough else f"Make room, or choose a folder on another disk than {folder}."
        yield Finding("disk space", name, f"{free / 1024**3:.1f} GiB free for {folder}", enough, advice)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())


def _data(folder: Path) -> Iterator[Finding]:
    from remanence.data import SOURCES

    present = folder.is_dir()
    advice = (
        "" if present else "Set REMANENCE_DATA or --data-dir; `remanence data list` says where to get data."
    )
    yield Finding("data", "folder", f"{folder} {'exists' if present else 'is missing'}", present, advice)
    for name, source in SOURCES.items():
        ready = source.present(folder)
        advice = "" if ready else f"Put the files from {source.home} into {folder / source.folders[0]}."
        yield Finding("data", name, "ready" if ready else "missing", ready, advice)


def _extras() -> Iterator[Finding]:
    for extra, packages in _packages_by_extra().items():
        missing = [package for package in packages if not _installed(package)]
        value = f"missing {', '.join(missing)}" if missing else "installed"
        advice = f"pip install 'remanence[{extra}]'" if missing else ""
        yield Finding("extra", extra, value, not missing, advice)
    for package, purpose in _INTEGRATIONS.items():
        present = _installed(package)
        advice = "" if present else f"pip install {package}, for {purpose}"
        yield Finding("extra", package, "installed" if present else "missing", present, advice)


def _packages_by_extra() -> dict[str, list[str]]:
    """The packages that each extra of our own adds, as the installed metadata has them."""
    packages: dict[str, list[str]] = {}
    for requirement in metadata.requires("remanence") or ():
        named = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", requirement)
        if named and named[2] not in _FOR_DEVELOPERS:
            packages.setdefault(named[2], []).append(named[1])
    return packages


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _print(findings: list[Finding]) -> None:
    """One line per finding; its advice on a line below."""
    previous = ""
    for finding in findings:
        if finding.topic != previous:
            console.out.print(finding.topic)
        previous = finding.topic
        lines = [f"  {'✓' if finding.ok else '✗'} {finding.name:<16} {finding.value}"]
        lines += [f"{'':<21}{finding.advice}"] if finding.advice else []
        console.out.print("\n".join(lines), soft_wrap=True, markup=False)
