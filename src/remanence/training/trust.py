"""Folders whose code the user trusts: only these may name a model by import path that is then executed.

A run folder can come from anybody, and `package.module:function` in its settings would be executed. The list of trusted
folders is kept outside of them, in the user's configuration folder, with the digest of each: a folder that has changed
or moved is no longer trusted.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from remanence.errors import RunFolderError
from remanence.models import is_import_path
from remanence.storage import SEAL, Folder, atomic
from remanence.storage.lock import waiting
from remanence.storage.parsing import parse_json, read_file

_FORMAT = 1


def trusted_file() -> Path:
    """The list of trusted folders of this user."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "remanence" / "trusted.json"


def is_trusted(folder: Folder) -> bool:
    """Whether the user trusts this folder as it is now."""
    return _read().get(_name(folder)) == folder.digest()


def trust(folder: Folder) -> None:
    """Trust a folder as it is now. Folders that no longer exist leave the list."""
    path = trusted_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with waiting(path.with_suffix(".lock")):
        kept = {name: digest for name, digest in _read().items() if (Path(name) / SEAL).exists()}
        kept[_name(folder)] = folder.digest()
        atomic.write_json(path, {"format": _FORMAT, "folders": kept}, private=True)


def check_trusted(folder: Folder, model: str) -> None:
    """Refuse an import path that comes from a folder, unless the user trusts the folder."""
    if is_import_path(model) and not is_trusted(folder):
        raise RunFolderError(
            f"{folder.path} names its model or task by the import path {model!r}, which is code that would be "
            "executed; this folder, as it is now, is not trusted. If you trust it, run "
            f"`remanence trust {folder.path}`; from Python, pass the `task` that builds the model."
        )


def trust_like(folder: Folder, model: str, parent: Folder) -> None:
    """Trust a folder that was just made here from another one, if that one is trusted."""
    if is_import_path(model) and is_trusted(parent):
        trust(folder)


def module_file(model: str) -> str | None:
    """The file of the module that an import path names; found without executing it. None if there is none."""
    where: Any = [str(Path.cwd()), *sys.path]
    parts = model.partition(":")[0].split(".")
    spec = None
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), where)
        if spec is None:
            return None
        where = spec.submodule_search_locations
    return None if spec is None else spec.origin


def _name(folder: Folder) -> str:
    return str(folder.path.resolve())


def _read() -> dict[str, str]:
    path = trusted_file()
    try:
        content = read_file(path)
    except FileNotFoundError:
        return {}
    document = parse_json(content, path)
    folders = document.get("folders") if isinstance(document, dict) else None
    if not isinstance(folders, dict) or document.get("format") != _FORMAT:
        raise RunFolderError(f"{path} is damaged. Delete it, and trust your folders again.")
    return folders
