"""What a store of studies holds, looked at without changing it: stages done and missing, figures, verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from remanence.errors import RemanenceError, RunFolderError
from remanence.stages.stage import in_order
from remanence.stages.timings import Timings
from remanence.storage import SEAL, Folder, open_folder
from remanence.storage.lock import is_held
from remanence.study.catalog import load_study, presets_of, shipped
from remanence.study.running import Planned, plan

_FIGURE = "figure"


@dataclass(frozen=True)
class Progress:
    """Stages of one kind.

    Args:
        kind: which.
        done: how many are there.
        total: how many there are to be.
        seconds: what those that are there took.
    """

    kind: str
    done: int
    total: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Seen:
    """One study as it is in the store now.

    Args:
        key: its figure's, which names it.
        title: what it is about.
        name: of its file, where it comes with the package.
        preset: with which preset.
        stages: by kind, inputs before what uses them; none for a study that does not come with the package.
        finished: whether its figure is there.
    """

    key: str
    title: str
    name: str
    preset: str
    stages: tuple[Progress, ...]
    finished: bool

    @property
    def done(self) -> int:
        """Stages that are there."""
        return sum(each.done for each in self.stages)

    @property
    def total(self) -> int:
        """Stages in all."""
        return sum(each.total for each in self.stages)


class Studies:
    """A store, looked at. Nothing is verified here as a study verifies it: that reads every file."""

    def __init__(self, root: Path, data_dir: Path | None = None) -> None:
        self.root = root
        self._data_dir = None if data_dir is None else str(data_dir.expanduser().resolve())

    def running(self) -> bool:
        """Whether a study is being computed at this moment."""
        return is_held(self.root / ".lock")

    def there(self) -> set[str]:
        """The keys of all finished stages."""
        return {path.parent.name for path in self.root.glob(f"*/{SEAL}")}

    def all(self) -> list[Seen]:
        """Every study of which something is there, as far as it can be told: its data must be here too."""
        there = self.there()
        entries = Timings(self.root).read()
        found = [self._planned(each, there, entries) for each in _plans(self._data_dir)]
        known = {each.key for each in found}
        others = [self._other(key) for key in sorted(there) if _is_figure(key) and key not in known]
        # what all studies share (a training run, say) is there for each of them; its own figure is what counts first
        return sorted([each for each in found if each.done] + others, key=lambda each: not each.finished)

    def one(self, key: str) -> Seen:
        """A study by its key."""
        found = next((each for each in self.all() if each.key == key), None)
        if found is None:
            raise RunFolderError("There is no such study in this store.")
        return found

    def folder(self, seen: Seen) -> Folder:
        """Its finished figure."""
        return open_folder(self.root / seen.key, _FIGURE)

    def figures(self, seen: Seen) -> list[str]:
        """The names of its pictures."""
        return sorted(Path(file).stem for file in self.folder(seen).files() if _is_picture(file))

    def picture(self, seen: Seen, name: str) -> bytes:
        """One of its pictures."""
        if name not in self.figures(seen):
            raise RunFolderError("There is no such figure.")
        return (self.root / seen.key / "figures" / f"{name}.png").read_bytes()

    def _planned(self, planned: Planned, there: set[str], entries: dict[str, Any]) -> Seen:
        kinds: dict[str, list[str]] = {}
        for stage in in_order([planned.goal]):
            kinds.setdefault(stage.kind, []).append(stage.key)
        stages = tuple(
            Progress(
                kind,
                sum(key in there for key in keys),
                len(keys),
                sum(entries[key].seconds for key in keys if key in entries),
            )
            for kind, keys in kinds.items()
        )
        study, key = planned.study, planned.goal.key
        return Seen(key, study.title, study.name, study.preset, stages, key in there)

    def _other(self, key: str) -> Seen:
        try:
            params = open_folder(self.root / key, _FIGURE).config().get("params", {})
        except RemanenceError:
            params = {}
        title = str(params.get("figure", key)).replace("_", " ").capitalize()
        return Seen(key, title, "", "", (), finished=True)


def _is_figure(key: str) -> bool:
    return key.startswith(f"{_FIGURE}-")


def _is_picture(file: str) -> bool:
    return file.startswith("figures/") and file.endswith(".png")


@cache
def _plans(data_dir: str | None) -> tuple[Planned, ...]:
    """Every study that comes with the package and whose data are here, with every preset."""
    found = []
    for path in shipped():
        for preset in presets_of(path):
            try:
                found.append(plan(load_study(str(path), preset, data_dir=data_dir)))
            except RemanenceError:  # its data are not here, so its stages have no names
                continue
    return tuple(found)
