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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tomli_w
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from remanence._version import __version__
from remanence.errors import UNREADABLE, RunFolderError
from remanence.storage import atomic
from remanence.storage.parsing import parse_json, parse_json_lines, parse_toml, read_file
from remanence.storage.table_reading import read_record

SEAL = "remanence.json"
_KINDS = {"i": "whole numbers", "f": "floats", "b": "booleans"}
_Record = TypeVar("_Record")
FORMAT = 2
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
        return parse_toml(self._read("config.toml"), self.path / "config.toml")

    def tensors(self, name: str, **expected: str) -> dict[str, NDArray[Any]]:
        """The arrays of NAME.safetensors.

        Args:
            name: the file, without its suffix.
            expected: kind and number of dimensions of arrays that must be there: `norms="f2"` is a table of floats,
                `steps="i1"` a list of whole numbers. Kinds are those of NumPy; unsigned numbers are whole numbers too.
        """
        path = self.path / f"{name}.safetensors"
        content = self._read(path.name)
        try:
            arrays = load_tensors(content)
        except (
            SafetensorError,
            KeyError,
            ValueError,
            MemoryError,
        ) as error:  # KeyError: a type that NumPy lacks
            raise RunFolderError(
                f"{path} is damaged: its arrays cannot be read ({type(error).__name__})."
            ) from None
        for key, shape in expected.items():
            array = arrays.get(key)
            if array is None or f"{array.dtype.kind.replace('u', 'i')}{array.ndim}" != shape:
                actual = "nothing" if array is None else f"{array.dtype} of {array.ndim} dimensions"
                raise RunFolderError(
                    f"{path} is damaged: expected {key!r} as {_KINDS[shape[0]]} of {shape[1]} dimensions; got {actual}."
                )
        return arrays

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of NAME.jsonl."""
        return parse_json_lines(self._read(f"{name}.jsonl"), self.path / f"{name}.jsonl")

    def document(self, name: str) -> dict[str, Any]:
        """The content of NAME.json."""
        content = parse_json(self._read(f"{name}.json"), self.path / f"{name}.json")
        if not isinstance(content, dict):
            raise RunFolderError(f"{self.path / name}.json is damaged: expected a JSON object.")
        return content

    def record(self, name: str, kind: type[_Record]) -> _Record:
        """The content of NAME.json as a dataclass."""
        return read_record(kind, self.document(name), self.path / f"{name}.json")

    def records(self, name: str, kind: type[_Record]) -> list[_Record]:
        """The rows of NAME.jsonl as dataclasses."""
        return [read_record(kind, row, self.path / f"{name}.jsonl") for row in self.rows(name)]

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
            content = read_file(self.path / name)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            raise RunFolderError(
                f"{self.path / name} is missing or cannot be read; the folder is damaged."
            ) from None
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
    atomic.write_text(path / SEAL, _seal_text(seal))


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
    seal = _read_seal(path)
    if kind is not None and seal["remanence"] != kind:
        raise RunFolderError(f"{path} holds a {seal['remanence']}; a {kind} is needed here.")
    return Folder(path, seal)


def _read_seal(path: Path) -> dict[str, Any]:
    """The seal of a folder: of a known format, every byte as it was written, naming only files inside the folder."""
    try:
        content = read_file(path / SEAL)
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        raise RunFolderError(f"{path} is not a folder made by Remanence (it has no {SEAL}).") from None
    seal = parse_json(content, path / SEAL)
    damaged = RunFolderError(f"{path / SEAL} is damaged; the folder cannot be read.")
    if not isinstance(seal, dict) or not isinstance(seal.get("format"), int):
        raise damaged
    if seal["format"] > FORMAT:
        raise RunFolderError(
            f"{path} was made by Remanence {seal.get('version')} in format {seal['format']}; this is version "
            f"{__version__}, which reads up to format {FORMAT}. Upgrade Remanence to read it."
        )
    if seal["format"] < FORMAT:
        raise RunFolderError(
            f"{path} was made by Remanence {seal.get('version')} in format {seal['format']}, which this version "
            f"{__version__} no longer reads. Make it again."
        )
    body = {key: value for key, value in seal.items() if key != "digest"}
    if not _is_seal(body) or content != _seal_text(body).encode():
        raise damaged
    return seal


def _is_seal(body: Mapping[str, Any]) -> bool:
    files = body.get("files")
    return (
        body.keys() == {"remanence", "format", "version", "files"}
        and isinstance(body["remanence"], str)
        and isinstance(body["version"], str)
        and isinstance(files, dict)
        and all(_is_inside(name) and _is_entry(entry) for name, entry in files.items())
    )


def _is_inside(name: str) -> bool:
    """Whether a name is a plain relative path that cannot lead out of its folder."""
    parts = name.split("/")
    return not any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts)


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == {"bytes", "sha256"}
        and type(entry["bytes"]) is int
        and isinstance(entry["sha256"], str)
    )


def _seal_text(body: Mapping[str, Any]) -> str:
    """The seal as text; its own digest is part of it, so that no byte of it can change unnoticed."""
    return json.dumps({**body, "digest": _sha256(_json(body).encode())}, indent=2) + "\n"


def to_toml(values: Mapping[str, Any]) -> str:
    """Settings as TOML, which has no null: values that are None are left out."""
    return tomli_w.dumps(_without_none(values))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain_toml(value) for key, value in values.items() if value is not None}


def _plain_toml(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _without_none(value)
    return [_plain_toml(entry) for entry in value] if isinstance(value, list | tuple) else value


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
