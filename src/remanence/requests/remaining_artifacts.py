"""Find remaining artifacts: models, checkpoints and files that still contain removed examples or their influence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remanence.errors import RemanenceError
from remanence.requests.request import model_hash
from remanence.storage import SEAL, open_folder
from remanence.training import Run, open_run
from remanence.types import Ids

_IMAGE = b"data:image/"
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
        erasable: whether it belongs to an ancestor of the run, so that `purge` erases it; others are only listed.
    """

    path: Path
    description: str
    erasable: bool = False

    def document(self) -> dict[str, Any]:
        return {"path": str(self.path), "description": self.description, "purge_erases": self.erasable}


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
    for searched, (folder, subfolders, names) in enumerate(_walk(look_in, skip.resolve())):
        if searched == _MOST:
            limit = f"the search ended here, after {_MOST} folders; name narrower places with `look_in`"
            artifacts[folder] = RemainingArtifact(folder, limit)
            break
        listed = {artifact.path: artifact for artifact in _in_folder(folder, names, run, models, ids)}
        subfolders[:] = [name for name in subfolders if folder / name not in listed]  # listed as a whole
        for path, artifact in listed.items():
            artifacts.setdefault(path.resolve(), artifact)
    return list(artifacts.values())


def _in_folder(
    folder: Path, names: list[str], run: Run, models: set[str], ids: Ids
) -> Iterator[RemainingArtifact]:
    if SEAL in names:
        yield from _in_sealed_folder(folder, run, models, ids)
    for path in (folder / name for name in names):
        if path.suffix == ".html" and _contains_images(path):
            yield RemainingArtifact(path, "a page with pictures of examples, which may show them")


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
        yield from _of_ancestor(other)
    elif _same_data(other, run) and _holds_any(other, ids):
        yield RemainingArtifact(folder, "another model that was trained on them and still holds them")


def _of_ancestor(run: Run) -> Iterator[RemainingArtifact]:
    """Everything in the folder of an ancestor that Remanence wrote."""
    folder = run.folder
    for name in [*folder.files(), SEAL]:
        description = _FILES.get(name, "part of the model before")
        yield RemainingArtifact(folder.path / name, description, erasable=True)
    for name, description in _FOLDERS.items():
        if (folder.path / name).exists():
            yield RemainingArtifact(folder.path / name, description, erasable=True)


def _same_data(other: Run, run: Run) -> bool:
    same = (other.settings.data, other.settings.data_dir) == (run.settings.data, run.settings.data_dir)
    return same or other.clean[0].digest() == run.clean[0].digest()


def _holds_any(run: Run, ids: Ids) -> bool:
    """Whether the run was trained on some of them and has not unlearned all."""
    return bool(run.was_trained_on(ids).any()) and not bool(np.isin(ids, run.forgotten).all())


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


def _contains_images(path: Path) -> bool:
    try:
        return _IMAGE in path.read_bytes()
    except OSError:
        return False
