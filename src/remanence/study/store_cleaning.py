"""Compare stores, and remove artifacts that are no longer needed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from remanence.errors import InputError, RunFolderError
from remanence.stages import Store, in_order
from remanence.storage import open_folder
from remanence.storage.lock import exclusive
from remanence.study.catalog import DEFAULT_PRESET, shipped
from remanence.study.outdated_artifacts import outdated
from remanence.study.running import Planned, plan_studies


@dataclass(frozen=True)
class StoreComparison:
    """A study's artifacts in two stores.

    Args:
        same: number of bit-identical artifacts.
        different: keys of those that differ.
        missing: keys that one of the stores lacks.
    """

    same: int
    different: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether both stores hold all artifacts, with the same bits."""
        return not (self.different or self.missing)


def compare_stores(planned: Sequence[Planned], one: Store, other: Store) -> StoreComparison:
    """Whether two stores hold the same bits for some studies."""
    same, different, missing = 0, [], []
    for stage in in_order([study.goal for study in planned]):
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
    return StoreComparison(same, tuple(different), tuple(missing))


def clean(store: Store, remove: Sequence[Planned], keep: Sequence[Planned], *, really: bool) -> list[Path]:
    """Remove artifacts that only these studies use, and all that are damaged, half-written or outdated.

    Args:
        store: the store to clean.
        remove: studies that are no longer wanted.
        keep: studies whose artifacts stay.
        really: remove; otherwise only list what would be removed.

    Returns:
        The removed files and folders.
    """
    if not store.root.exists():
        return []
    store.check()
    kept = {stage.key for stage in in_order([study.goal for study in keep])}
    unwanted = {stage.key for stage in in_order([study.goal for study in remove])} - kept
    if not really:
        return _removable(store, unwanted)
    with exclusive(store.root / ".lock", f"A study is running in {store.root}; wait for it."):
        store.sweep()
        removable = _removable(store, unwanted)
        for path in removable:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    return removable


def clean_studies(
    store: Store,
    names: Sequence[str] = (),
    preset: str = DEFAULT_PRESET,
    overrides: Sequence[str] = (),
    *,
    data_dir: str | Path | None = None,
    really: bool,
) -> list[Path]:
    """`clean`, keeping what the other studies that come with the package use.

    With overrides, the artifacts of the named studies without them stay too.
    """
    remove = plan_studies(names, preset, overrides, data_dir=data_dir)
    named = {entry.study.name for entry in remove}
    keep: list[Planned] = []
    for path in shipped() if remove else ():
        other = path.stem not in named
        variants: list[Sequence[str]] = [()] if overrides or other else []
        variants += [overrides] if overrides and other else []
        for variant in variants:
            with contextlib.suppress(InputError):  # a study that cannot be planned here has no artifacts here
                keep += plan_studies([str(path)], preset, variant, data_dir=data_dir)
    return clean(store, remove, keep, really=really)


def _removable(store: Store, unwanted: Collection[str]) -> list[Path]:
    old = set(outdated(store))
    artifacts = [path for path in store.artifacts() if path.name in unwanted or path in old or _damaged(path)]
    return artifacts + sorted((store.root / "logs").glob("*.log"))


def _damaged(path: Path) -> bool:
    try:
        open_folder(path).verify()
    except RunFolderError as error:
        return "Upgrade" not in str(error)
    return False
