"""What still remembers: every artifact that holds removed examples' influence or data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remanence.errors import RemanenceError
from remanence.requests.calibration import model_hash
from remanence.requests.ledger import past
from remanence.storage import SEAL, open_folder
from remanence.training import Run, open_run
from remanence.types import Ids

_PICTURE = b"data:image/"
_MOST = 20_000
"""Folders looked into before giving up: this is a search, not a crawl."""


@dataclass(frozen=True)
class Remain:
    """One artifact.

    Args:
        path: where.
        what: it holds, in words.
        ours: it belongs to the models before this one, so `purge` erases it; others are only told.
    """

    path: Path
    what: str
    ours: bool


def remains_of(new: Run, ids: Ids, look_in: Sequence[Path]) -> list[Remain]:
    """Everything under these folders that holds influence or data of examples that left the run `new`."""
    return find_remains(new, {row["model_before"] for row in past(new)}, ids, look_in, skip=new.folder.path)


def find_remains(
    run: Run, models: set[str], ids: Ids, look_in: Iterable[Path], *, skip: Path
) -> list[Remain]:
    """Everything under these folders that still remembers.

    Args:
        run: whose data they are.
        models: hashes of the weights of the models before.
        ids: the removed examples.
        look_in: folders to search.
        skip: the folder of the run that they were removed from.
    """
    found: dict[Path, Remain] = {}
    kept = skip.resolve()
    for looked, (folder, names) in enumerate(_folders(look_in, kept)):
        if looked == _MOST:
            told = f"the search ended here, after {_MOST} folders; name narrower places with --look-in"
            found[folder] = Remain(folder, told, ours=False)
            break
        for each in _in_folder(folder, names, run, models, ids):
            found.setdefault(each.path.resolve(), each)
    return list(found.values())


def _in_folder(folder: Path, names: list[str], run: Run, models: set[str], ids: Ids) -> Iterator[Remain]:
    if SEAL in names:
        yield from _sealed(folder, names, run, models, ids)
    for name in names:
        path = folder / name
        if path.suffix == ".html" and _shows_pictures(path):
            yield Remain(path, "a page with pictures of examples, which may show them", ours=False)


def _sealed(folder: Path, names: list[str], run: Run, models: set[str], ids: Ids) -> Iterator[Remain]:
    try:
        kind = open_folder(folder).kind
        other = open_run(folder) if kind == "training" else None
    except RemanenceError:
        yield Remain(folder, "a folder that cannot be read; it may hold anything", ours=False)
        return
    if other is None:
        if kind in ("checkpoint", "calibration") and _within_ancestor(folder, models):
            return  # told with the run it belongs to
        if kind != "checkpoint":
            yield Remain(
                folder, f"an artifact of kind {kind!r}, which may have been computed from them", ours=False
            )
    elif model_hash(other) in models:
        yield from _ancestor(other, ids)
    elif _alike(other, run) and other.was_trained_on(ids).any():
        done = bool(np.isin(ids, other.forgotten).all())
        what = "has unlearned them too" if done else "still holds them"
        if not done:
            yield Remain(folder, f"another model that was trained on them and {what}", ours=False)


def _ancestor(run: Run, ids: Ids) -> Iterator[Remain]:
    """A model before this one: everything in its folder that Remanence wrote."""
    folder = run.folder
    said = {
        "weights.safetensors": "the model before they were unlearned",
        "trace.safetensors": "their gradient norms, confidence and error while training (trace rows)",
        "poison.safetensors": "the noise that some examples were trained with (poisoned copies)",
        "removed.safetensors": "nameless norms of what left before",
        "ledger.jsonl": "ids that left before",
        "evidence.json": "the evidence of the request before",
        "evidence.html": "the evidence of the request before",
    }
    for name in [*folder.files(), SEAL]:
        yield Remain(folder.path / name, said.get(name, "part of the model before"), ours=True)
    inside = {
        "checkpoints": "states of the model while it trained on them",
        "calibration": "what reference models say of them",
        ".calibrating": "an unfinished calibration",
        "oracle": "an oracle of the request before, which was trained on them",
    }
    for name, what in inside.items():
        if (folder.path / name).exists():
            yield Remain(folder.path / name, what, ours=True)


def _within_ancestor(folder: Path, models: set[str]) -> bool:
    for parent in folder.parents[:3]:
        if (parent / SEAL).exists():
            try:
                return model_hash(open_run(parent)) in models
            except RemanenceError:
                return False
    return False


def _alike(other: Run, run: Run) -> bool:
    """Whether two runs are of one data set."""
    same = (other.settings.data, other.settings.data_dir) == (run.settings.data, run.settings.data_dir)
    return same or other.clean[0].digest() == run.clean[0].digest()


def _folders(look_in: Iterable[Path], skip: Path) -> Iterator[tuple[Path, list[str]]]:
    for root in look_in:
        for place, inside, names in os.walk(root):
            folder = Path(place)
            inside[:] = sorted(
                each for each in inside if (folder / each).resolve() != skip and each != ".git"
            )
            if folder.resolve() == skip:
                inside.clear()
                continue
            yield folder, sorted(names)


def _shows_pictures(path: Path) -> bool:
    try:
        return _PICTURE in path.read_bytes()
    except OSError:
        return False
