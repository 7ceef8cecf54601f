"""Reserve a folder for a run that is not finished yet, so that it can only be resumed with the same settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remanence.errors import InputError, RunFolderError
from remanence.storage import atomic
from remanence.storage.folder import SEAL, open_folder, to_toml
from remanence.storage.parsing import parse_toml, read_file

UNFINISHED = "unfinished.toml"
"""Holds the settings until the folder is sealed."""
_NAME_EXAMPLES = ("unlearning.forget", "unlearning.forgotten", "unlearning.file_sha256")
"""Settings that name the examples of a request, or its list."""


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
    atomic.write_text(out / UNFINISHED, text, private=True)  # it may list ids
    return True


def reclaim(config: Mapping[str, Any], out: Path, *, ignore: Sequence[str]) -> None:
    """Reserve a folder again, to go on there with other settings than it was begun or finished with.

    Args:
        config: the settings from now on.
        out: a folder that was begun, or sealed; its seal is removed.
        ignore: the beginnings of the keys that may differ; any other difference is refused, and nothing is changed.
    """
    text = to_toml(config)
    begun = out / ("config.toml" if (out / SEAL).exists() else UNFINISHED)
    _refuse_difference(begun, text, ignore)
    atomic.write_text(out / UNFINISHED, text, private=True)  # it may list ids
    (out / SEAL).unlink(missing_ok=True)  # last: until then the folder counts as finished


def _refuse_difference(path: Path, text: str, ignore: Sequence[str] = ()) -> None:
    before, now = (_flatten(parse_toml(content, path)) for content in (read_file(path), text.encode()))
    # long lists last: a single value says more
    keys = [key for key in before.keys() | now.keys() if not key.startswith(tuple(ignore))]
    for key in sorted(keys, key=lambda key: (isinstance(before.get(key), list), key)):
        if before.get(key) == now.get(key):
            continue
        if key in _NAME_EXAMPLES:
            # whose request it was is not for everybody who chooses the same folder
            raise InputError(
                f"{path.parent} was begun with other examples ({key}). Resume with the same ones."
            )
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
