"""The sealed folder: the format of everything that Remanence writes, such as runs and the artifacts of studies.

    remanence.json        the seal: kind of the folder, format, version, size and SHA-256 of each file
    config.toml           settings
    NAME.safetensors      arrays
    NAME.jsonl            tables, one JSON object per row
    NAME.json             small documents

The checksum of a file is verified whenever it is read. Nothing is ever unpickled.
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
"""Raised whenever the layout changes in a way that older versions cannot read."""


class Draft:
    """A folder that is being written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self, values: Mapping[str, Any]) -> None:
        """Write config.toml; values that are None are left out."""
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
        """The path at which to write any other file of this folder."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class Folder:
    """A sealed folder that is open for reading."""

    def __init__(self, path: Path, seal: Mapping[str, Any]) -> None:
        self.path = path
        self.kind: str = seal["remanence"]
        self.version: str = seal["version"]
        self._files: Mapping[str, Mapping[str, Any]] = seal["files"]

    def config(self) -> dict[str, Any]:
        """The settings in config.toml."""
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
        """SHA-256 of every file."""
        return {name: entry["sha256"] for name, entry in self._files.items()}

    def has(self, file: str) -> bool:
        """Whether the folder contains this file, according to its seal."""
        return file in self._files

    def digest(self) -> str:
        """One hash of the content of all files; independent of the version that wrote them."""
        return _sha256(_json(self.files()).encode())

    def verify(self) -> None:
        """Compare all files with their checksums."""
        for name in self._files:
            self._read(name)

    def _read(self, name: str) -> bytes:
        if name not in self._files:
            raise RunFolderError(f"{self.path} has no {name}; it holds {', '.join(sorted(self._files))}.")
        try:
            content = (self.path / name).read_bytes()
        except FileNotFoundError:
            raise RunFolderError(f"{self.path / name} is missing; the folder is damaged.") from None
        if _sha256(content) != self._files[name]["sha256"]:
            raise RunFolderError(f"{self.path / name} is damaged: its checksum is not that of the seal.")
        return content


def seal_in_place(path: Path, kind: str, files: Iterable[str]) -> None:
    """Write the seal of a folder, which lists these files; without its seal, a folder counts as unfinished."""
    contents = {name: (path / name).read_bytes() for name in files}
    seal = {
        "remanence": kind,
        "format": FORMAT,
        "version": __version__,
        "files": {
            name: {"bytes": len(content), "sha256": _sha256(content)} for name, content in contents.items()
        },
    }
    atomic.write_text(path / SEAL, json.dumps(seal, indent=2) + "\n")


@contextlib.contextmanager
def create(target: Path, kind: str) -> Iterator[Draft]:
    """Write a new folder; at the end of the block it is sealed and becomes `target`, all at once."""
    with atomic.new_folder(target) as temporary:
        yield Draft(temporary)
        files = sorted(file for file in temporary.rglob("*") if file.is_file())
        seal_in_place(temporary, kind, [file.relative_to(temporary).as_posix() for file in files])


def open_folder(path: str | Path, kind: str | None = None) -> Folder:
    """Open a sealed folder.

    Args:
        path: the folder.
        kind: the kind that it must have; any kind by default.
    """
    path = Path(path)
    try:
        seal = json.loads((path / SEAL).read_text())
        actual_kind, file_format, version = seal["remanence"], seal["format"], seal["version"]
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{path} is not a folder made by Remanence (it has no {SEAL}).") from None
    except (ValueError, KeyError, TypeError):
        raise RunFolderError(f"{path / SEAL} is damaged; the folder cannot be read.") from None
    if not isinstance(file_format, int) or file_format > FORMAT:
        raise RunFolderError(
            f"{path} was made by Remanence {version} in format {file_format}; this is version {__version__}, "
            f"which reads up to format {FORMAT}. Upgrade Remanence to read it."
        )
    if kind is not None and actual_kind != kind:
        raise RunFolderError(f"{path} holds a {actual_kind}; a {kind} is needed here.")
    return Folder(path, seal)


def to_toml(values: Mapping[str, Any]) -> str:
    """Settings as TOML, which has no null: values that are None are left out."""
    return tomli_w.dumps(_without_none(values))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
