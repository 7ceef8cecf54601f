"""Reserve a folder for a run that is not finished yet, so that it can only be resumed with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remanence.errors import InputError, RunFolderError
from remanence.storage import atomic
from remanence.storage.folder import SEAL, open_folder, to_toml
from remanence.storage.parsing import parse_toml, read_file

UNFINISHED = "unfinished.toml"
"""Holds the settings until the folder is sealed."""


def claim(config: Mapping[str, Any], out: Path, resume: bool, *, kind: str = "training") -> bool:
    """Reserve a folder for a run with these settings; other files are never touched.

    Args:
        config: the settings of the run.
        out: folder of the run.
        resume: accept a folder, finished or not, that was begun with the same settings.
        kind: expected kind of a finished folder.

    Returns:
        Whether the folder is new.
    """
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"{out} is a file; `out` must be a folder.")
    text = to_toml(config)
    if (out / SEAL).exists():
        open_folder(out, kind)
        if not resume:
            raise RunFolderError(f"{out} holds a finished run; choose another folder. Nothing was changed.")
        _refuse_difference(out / "config.toml", text)
        return False
    if (out / UNFINISHED).exists():
        if not resume:
            raise RunFolderError(f"{out} holds an unfinished run; resume it, or choose another folder.")
        _refuse_difference(out / UNFINISHED, text)
        return False
    if out.exists() and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise RunFolderError(f"{out} is not empty and not a run; choose another folder. Nothing was changed.")
    atomic.write_text(out / UNFINISHED, text)
    return True


def _refuse_difference(path: Path, text: str) -> None:
    before, now = (_flatten(parse_toml(content, path)) for content in (read_file(path), text.encode()))
    # long lists last: a single value says more
    for key in sorted(before.keys() | now.keys(), key=lambda key: (isinstance(before.get(key), list), key)):
        if before.get(key) != now.get(key):
            raise InputError(
                f"{path.parent} was begun with {key} = {before.get(key)}; now it is {now.get(key)}. "
                "Resume with the same settings."
            )


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
