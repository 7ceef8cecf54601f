"""What lies in a store, and what of it can go."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from remanence.errors import RunFolderError
from remanence.storage import open_folder
from remanence.storage.lock import exclusive
from remanence.study.outdated import outdated
from remanence.study.running import Planned
from remanence.study.stages import in_order
from remanence.study.store import Store


@dataclass(frozen=True)
class Comparison:
    """A study's artifacts in two stores.

    Args:
        same: how many are bit-identical.
        different: keys of those that are not.
        missing: keys that one of the stores lacks.
    """

    same: int
    different: tuple[str, ...]
    missing: tuple[str, ...]


def compare_stores(planned: Sequence[Planned], one: Store, other: Store) -> Comparison:
    """Whether two stores hold the same bits for some studies."""
    same, different, missing = 0, [], []
    for stage in in_order([each.goal for each in planned]):
        if not (one.path(stage).exists() and other.path(stage).exists()):
            missing.append(stage.key)
            continue
        folders = [store.get(stage) for store in (one, other)]
        for folder in folders:
            folder.verify()
        if folders[0].digest() == folders[1].digest():
            same += 1
        else:
            different.append(stage.key)
    return Comparison(same, tuple(different), tuple(missing))


def clean(store: Store, remove: Sequence[Planned], keep: Sequence[Planned], *, really: bool) -> list[Path]:
    """Remove the artifacts of some studies that others do not share, and all that is damaged, half-written or outdated.

    Args:
        store: whose.
        remove: studies that are no longer wanted.
        keep: studies whose artifacts stay.
        really: or only say what would go, and change nothing.
    """
    if not store.root.exists():
        return []
    store.check()
    kept = {stage.key for stage in in_order([each.goal for each in keep])}
    unwanted = {stage.key for stage in in_order([each.goal for each in remove])} - kept
    if not really:
        return _going(store, unwanted)
    with exclusive(store.root / ".lock", f"A study is running in {store.root}; wait for it."):
        store.sweep()
        going = _going(store, unwanted)
        for path in going:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    return going


def _going(store: Store, unwanted: Collection[str]) -> list[Path]:
    old = set(outdated(store))
    going = [path for path in store.artifacts() if path.name in unwanted or path in old or _damaged(path)]
    return going + sorted((store.root / "logs").glob("*.log"))


def _damaged(path: Path) -> bool:
    try:
        open_folder(path).verify()
    except RunFolderError as error:
        return "Upgrade" not in str(error)
    return False
