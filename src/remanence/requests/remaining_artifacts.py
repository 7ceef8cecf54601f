"""Find remaining artifacts: models, checkpoints and files that still contain removed examples or their influence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data.columns import read_columns, read_json, read_text
from remanence.errors import RemanenceError
from remanence.requests.request import model_hash
from remanence.requests.signing import hash_ids
from remanence.storage import SEAL, UNFINISHED, Folder, open_folder
from remanence.training import Run, open_run
from remanence.types import Ids

_IMAGE = b"data:image/"
_LISTS = (".csv", ".parquet", ".json", ".txt")
_LARGEST_LIST = 32 << 20
_MOST = 20_000
"""Maximum number of folders to search."""
_FILES = {
    "weights.safetensors": "the model before they were unlearned",
    "trace.safetensors": "their gradient norms, confidence and error during training (trace rows)",
    "poison.safetensors": "the noise that some examples were trained with (poisoned copies)",
    "removed.safetensors": "anonymous norms of examples removed earlier",
    "ledger.jsonl": "ids that were removed earlier",
    "evidence.json": "the evidence of an earlier request",
    "evidence.html": "the evidence of an earlier request",
}
_FOLDERS = {
    "checkpoints": "states of the model while it was trained on them",
    "calibration": "outputs of the reference models on them",
    ".calibrating": "an unfinished calibration",
    "oracle": "the oracle of an earlier request, which was trained on them",
}


@dataclass(frozen=True)
class RemainingArtifact:
    """One file or folder.

    Args:
        path: where it is.
        description: what it contains.
        earlier_model: whether it is the folder of an earlier model of the run, which `purge` can be told to erase.
        erasable: whether it is in a folder that `purge` was told to erase.
        copy_of: the folder to erase that it is an identical copy of.
    """

    path: Path
    description: str
    earlier_model: bool = False
    erasable: bool = False
    copy_of: Path | None = None

    @property
    def size(self) -> int:
        """Bytes of the file, or of all files in the folder; links are not followed."""
        if self.path.is_symlink() or not self.path.is_dir():
            return _bytes_of(self.path)
        return sum(
            _bytes_of(Path(folder) / name) for folder, _, names in os.walk(self.path) for name in names
        )

    def document(self) -> dict[str, Any]:
        erases = self.earlier_model or self.erasable
        return {"path": str(self.path), "description": self.description, "purge_erases": erases}

    def pseudonymous(self, salt: str) -> dict[str, Any]:
        """The artifact for evidence: a path may name a person or a list, so its keyed hash takes its place."""
        description = self.description if self.copy_of is None else "an identical copy of an earlier model"
        (hashed,) = hash_ids([str(self.path.resolve())], salt)
        return {
            "description": description,
            "path_hmac": hashed,
            "purge_erases": self.earlier_model or self.erasable,
        }


def _bytes_of(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:  # removed meanwhile
        return 0


def find_remaining_artifacts(
    run: Run, models: set[str], ids: Ids, look_in: Iterable[Path], *, skip: Path
) -> list[RemainingArtifact]:
    """Every artifact below some folders that still contains removed examples or their influence.

    Args:
        run: a run on the data set of the examples.
        models: hashes of the models from which they were removed.
        ids: the removed examples.
        look_in: folders to search.
        skip: the folder of the run without the examples.
    """
    artifacts: dict[Path, RemainingArtifact] = {}
    table = run.settings.source.data.table_path()
    if table is not None and len(run.present(ids)):
        description = "the table that the model was trained on, which still has their rows"
        artifacts[table.resolve()] = RemainingArtifact(table.resolve(), description)
    for searched, (folder, subfolders, names) in enumerate(_walk(look_in, skip.resolve())):
        if searched == _MOST:
            limit = f"the search ended here, after {_MOST} folders; name narrower places with `look_in`"
            artifacts[folder] = RemainingArtifact(folder, limit)
            break
        listed = {artifact.path: artifact for artifact in _in_folder(folder, names, run, models, ids)}
        subfolders[:] = [name for name in subfolders if folder / name not in listed]  # listed as a whole
        for path, artifact in listed.items():
            artifacts.setdefault(path.resolve(), artifact)
    return [*artifacts.values(), *_reference_outputs(skip)]


def _reference_outputs(new: Path) -> Iterator[RemainingArtifact]:
    """The calibration of the new run, if its reference models were trained on the examples."""
    path = new / "calibration"
    try:
        inherited = (path / SEAL).exists() and open_folder(path, "calibration").config().get("inherited")
    except RemanenceError:
        inherited = True
    if inherited:
        yield RemainingArtifact(
            path,
            "outputs of reference models that were trained on them; `remanence calibrate` trains these models again "
            "without them, and deleting the folder discards them",
        )


def _in_folder(
    folder: Path, names: list[str], run: Run, models: set[str], ids: Ids
) -> Iterator[RemainingArtifact]:
    if SEAL in names:
        yield from _in_sealed_folder(folder, run, models, ids)
    elif UNFINISHED in names:
        yield RemainingArtifact(folder, "an unfinished run, whose checkpoints may have been trained on them")
    removed = {str(example) for example in ids.tolist()}
    for path in (folder / name for name in names):
        if path.suffix == ".html" and _contains_images(path):
            yield RemainingArtifact(path, "a page with pictures of examples, which may show them")
        elif SEAL not in names and _lists_any(path, removed):
            yield RemainingArtifact(path, "a file that lists some of the ids")


def _in_sealed_folder(folder: Path, run: Run, models: set[str], ids: Ids) -> Iterator[RemainingArtifact]:
    try:
        kind = open_folder(folder).kind
        other = open_run(folder) if kind == "training" else None
    except RemanenceError:
        yield RemainingArtifact(folder, "a folder that cannot be read; its content is unknown")
        return
    if other is None:
        if kind != "checkpoint":
            yield RemainingArtifact(
                folder, f"an artifact of kind {kind!r}, which may have been computed from them"
            )
    elif model_hash(other) in models:
        yield RemainingArtifact(folder, "an earlier model, which was trained on them", earlier_model=True)
    else:
        yield from _in_other_run(other, run, ids)


def _in_other_run(other: Run, run: Run, ids: Ids) -> Iterator[RemainingArtifact]:
    try:
        holds = _same_data(other, run) and _holds_any(other, ids)
    except RemanenceError:  # a request must not fail because of somebody else's folder
        yield RemainingArtifact(
            other.folder.path, "another model, whose data cannot be read; it may have been trained on them"
        )
        return
    if holds:
        description = "another model that was trained on them and still holds them"
        yield RemainingArtifact(other.folder.path, description)


def artifacts_of_ancestor(folder: Folder) -> list[RemainingArtifact]:
    """Everything in the folder of an earlier model that Remanence wrote, and the requests beside it."""
    beside = folder.path.with_name(f"{folder.path.name}-requests")
    files = {
        folder.path / name: _FILES.get(name, "part of the model before") for name in [*folder.files(), SEAL]
    }
    folders = {folder.path / name: description for name, description in _FOLDERS.items()}
    folders[beside] = "requests started in the dashboard, with their ids"
    present = {path: text for path, text in folders.items() if path.is_dir() and not path.is_symlink()}
    return [RemainingArtifact(path, text, erasable=True) for path, text in (files | present).items()]


def _same_data(other: Run, run: Run) -> bool:
    same = other.settings.same_data(run.settings)
    return same or other.clean[0].digest() == run.clean[0].digest()


def _holds_any(run: Run, ids: Ids) -> bool:
    """Whether the run, which is on the same data, was trained on some of them and has not unlearned these.

    They need not be in the data any more: their rows may have been erased since.
    """
    return not bool(np.isin(ids, run.removed).all())


def _walk(look_in: Iterable[Path], skip: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """As os.walk; the caller may remove subfolders that are not to be searched."""
    for root in dict.fromkeys(look_in):
        for path, subfolders, names in os.walk(root):
            folder = Path(path)
            if folder.resolve() == skip:
                subfolders.clear()
                continue
            subfolders[:] = sorted(
                name for name in subfolders if name != ".git" and (folder / name).resolve() != skip
            )
            yield folder, subfolders, sorted(names)


def _lists_any(path: Path, removed: set[str]) -> bool:
    """Whether a table, a JSON document or a text file lists one of these ids as an id."""
    try:
        if path.suffix not in _LISTS or path.is_symlink() or path.stat().st_size > _LARGEST_LIST:
            return False
        return not removed.isdisjoint(_listed(path))
    except (RemanenceError, OSError):
        return False


def _listed(path: Path) -> set[str]:
    if path.suffix in (".csv", ".parquet"):
        columns = read_columns(path).values
        return {str(value) for name, values in columns.items() if "id" in name.lower() for value in values}
    if path.suffix == ".json":
        content = read_json(path)
        entries = content.get("ids") if isinstance(content, dict) else content
        return set(map(str, entries)) if isinstance(entries, list) else set()
    return {line.strip() for line in read_text(path).splitlines()}


def _contains_images(path: Path) -> bool:
    try:
        return _IMAGE in path.read_bytes()
    except OSError:
        return False
