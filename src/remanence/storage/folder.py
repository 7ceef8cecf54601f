"""A sealed folder that a person can read and a program can trust.

Every folder that Remanence writes (a training run, a study's artifact) has the same shape:

    remanence.json        what kind of folder, which format and version wrote it, size and SHA-256 of each file
    config.toml           what it was asked to do
    NAME.safetensors      arrays
    NAME.jsonl            tables, one JSON object a row
    NAME.json             small documents

It is filled aside and renamed into place, so it is whole or absent. Each file's checksum is verified
when it is read. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from remanence._version import __version__
from remanence.errors import RunFolderError
from remanence.storage import atomic

SEAL = "remanence.json"
FORMAT = 1
"""Raised whenever a folder's layout changes in a way that older code cannot read."""


class Draft:
    """A folder being filled; `create` makes one and seals it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self, values: Mapping[str, Any]) -> None:
        """Write config.toml; keys without a value are left out."""
        self.file("config.toml").write_text(to_toml(values))

    def tensors(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write NAME.safetensors."""
        contiguous = {key: np.asarray(array, order="C") for key, array in arrays.items()}
        self.file(f"{name}.safetensors").write_bytes(save_tensors(contiguous))

    def rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write NAME.jsonl."""
        self.file(f"{name}.jsonl").write_text("".join(_json(row) + "\n" for row in rows))

    def document(self, name: str, content: Mapping[str, Any]) -> None:
        """Write NAME.json."""
        self.file(f"{name}.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")

    def file(self, name: str) -> Path:
        """Where to write any other file of this folder."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _seal(self, kind: str) -> None:
        files = sorted(file for file in self.path.rglob("*") if file.is_file())
        self.file(SEAL).write_text(_seal_text(self.path, kind, files))


class Folder:
    """A sealed folder, opened for reading."""

    def __init__(self, path: Path, seal: Mapping[str, Any]) -> None:
        self.path = path
        self.kind: str = seal["remanence"]
        self.version: str = seal["version"]
        self._files: Mapping[str, Mapping[str, Any]] = seal["files"]

    def config(self) -> dict[str, Any]:
        """What this folder was asked to do."""
        return tomllib.loads(self._read("config.toml").decode())

    def tensors(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of NAME.safetensors."""
        try:
            return load_tensors(self._read(f"{name}.safetensors"))
        except SafetensorError as error:
            raise RunFolderError(f"{self.path / name}.safetensors cannot be read: {error}.") from error

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of NAME.jsonl."""
        return [json.loads(line) for line in self._read(f"{name}.jsonl").decode().splitlines()]

    def document(self, name: str) -> dict[str, Any]:
        """The content of NAME.json."""
        content: dict[str, Any] = json.loads(self._read(f"{name}.json"))
        return content

    def files(self) -> dict[str, str]:
        """Every file's SHA-256."""
        return {name: facts["sha256"] for name, facts in self._files.items()}

    def has(self, file: str) -> bool:
        """Whether the seal lists this file."""
        return file in self._files

    def digest(self) -> str:
        """One hash over all the contents, whoever wrote them and when."""
        return _digest(_json({name: facts["sha256"] for name, facts in sorted(self._files.items())}).encode())

    def verify(self) -> None:
        """Read everything and compare it with the seal."""
        for name in self._files:
            self._read(name)

    def _read(self, name: str) -> bytes:
        if name not in self._files:
            raise RunFolderError(f"{self.path} has no {name}; it holds {', '.join(sorted(self._files))}.")
        try:
            content = (self.path / name).read_bytes()
        except FileNotFoundError:
            raise RunFolderError(f"{self.path / name} is missing; the folder is damaged.") from None
        if _digest(content) != self._files[name]["sha256"]:
            raise RunFolderError(
                f"{self.path / name} is damaged: its checksum is not the one it was sealed with."
            )
        return content


def seal_in_place(path: Path, kind: str, files: Iterable[str]) -> None:
    """Seal a folder that was filled where it stands; until the seal is written it counts as unfinished."""
    atomic.write_text(path / SEAL, _seal_text(path, kind, [path / file for file in files]))


@contextlib.contextmanager
def create(target: Path, kind: str) -> Iterator[Draft]:
    """Fill a new folder; when the block ends well it is sealed and becomes `target`."""
    with atomic.new_folder(target) as aside:
        draft = Draft(aside)
        yield draft
        draft._seal(kind)


def open_folder(path: str | Path, kind: str | None = None) -> Folder:
    """Open a sealed folder; anything else is refused with what was found instead."""
    path = Path(path)
    try:
        seal = json.loads((path / SEAL).read_text())
        found_kind, found_format, version = seal["remanence"], seal["format"], seal["version"]
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{path} is not a folder made by Remanence (it has no {SEAL}).") from None
    except (ValueError, KeyError, TypeError):
        raise RunFolderError(f"{path / SEAL} is damaged; the folder cannot be read.") from None
    if not isinstance(found_format, int) or found_format > FORMAT:
        raise RunFolderError(
            f"{path} was made by Remanence {version} in format {found_format}; this is version {__version__}, "
            f"which reads up to format {FORMAT}. Upgrade Remanence to read it."
        )
    if kind is not None and found_kind != kind:
        raise RunFolderError(f"{path} holds a {found_kind}; a {kind} is needed here.")
    return Folder(path, seal)


def to_toml(values: Mapping[str, Any]) -> str:
    """Settings as TOML; keys without a value are left out, which is how TOML says none."""
    return tomli_w.dumps(_without_none(values))


def _seal_text(path: Path, kind: str, files: Iterable[Path]) -> str:
    contents = {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
    seal = {
        "remanence": kind,
        "format": FORMAT,
        "version": __version__,
        "files": {
            name: {"bytes": len(content), "sha256": _digest(content)} for name, content in contents.items()
        },
    }
    return json.dumps(seal, indent=2) + "\n"


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
