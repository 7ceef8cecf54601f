"""The content of a store of studies: finished and missing stages, figures and results. Nothing is changed."""

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
class StageCount:
    """Stages of one kind.

    Args:
        kind: kind of the stages.
        done: number of finished stages.
        total: number of all stages.
        seconds: time that the finished stages took.
    """

    kind: str
    done: int
    total: int
    seconds: float


@dataclass(frozen=True, eq=False)
class StudyStatus:
    """One study as it is in the store now.

    Args:
        key: key of its figure.
        title: title of its figure.
        name: name of its file, if it comes with the package.
        preset: name of the preset.
        stages: counts by kind, in the order of computation; empty if it does not come with the package.
        finished: whether its figure is finished.
    """

    key: str
    title: str
    name: str
    preset: str
    stages: tuple[StageCount, ...]
    finished: bool

    @property
    def done(self) -> int:
        """Number of finished stages."""
        return sum(stage.done for stage in self.stages)

    @property
    def total(self) -> int:
        """Number of all stages."""
        return sum(stage.total for stage in self.stages)


class Studies:
    """A store, looked at. Nothing is verified here as a study verifies it: that reads every file."""

    def __init__(self, root: Path, data_dir: Path | None = None) -> None:
        self.root = root
        self._data_dir = None if data_dir is None else str(data_dir.expanduser().resolve())

    def running(self) -> bool:
        """Whether a study is being computed at this moment."""
        return is_held(self.root / ".lock")

    def finished_stages(self) -> set[str]:
        """The keys of all finished stages."""
        return {path.parent.name for path in self.root.glob(f"*/{SEAL}")}

    def all(self) -> list[StudyStatus]:
        """Every study with finished stages whose data are on this machine, and every other finished figure."""
        finished = self.finished_stages()
        entries = Timings(self.root).read()
        shipped_studies = [self._planned(study, finished, entries) for study in _plans(self._data_dir)]
        known = {study.key for study in shipped_studies}
        others = [self._other(key) for key in sorted(finished) if _is_figure(key) and key not in known]
        # studies share stages (a training run), so those with a figure of their own come first
        return sorted(
            [study for study in shipped_studies if study.done] + others, key=lambda study: not study.finished
        )

    def one(self, key: str) -> StudyStatus:
        """A study by its key."""
        study = next((study for study in self.all() if study.key == key), None)
        if study is None:
            raise RunFolderError("There is no such study in this store.")
        return study

    def folder(self, study: StudyStatus) -> Folder:
        """Its finished figure."""
        return open_folder(self.root / study.key, _FIGURE)

    def figures(self, study: StudyStatus) -> list[str]:
        """The names of its pictures."""
        return sorted(Path(file).stem for file in self.folder(study).files() if _is_picture(file))

    def picture(self, study: StudyStatus, name: str) -> bytes:
        """One of its pictures."""
        if name not in self.figures(study):
            raise RunFolderError("There is no such figure.")
        return (self.root / study.key / "figures" / f"{name}.png").read_bytes()

    def _planned(self, planned: Planned, finished: set[str], entries: dict[str, Any]) -> StudyStatus:
        kinds: dict[str, list[str]] = {}
        for stage in in_order([planned.goal]):
            kinds.setdefault(stage.kind, []).append(stage.key)
        stages = tuple(
            StageCount(
                kind,
                sum(key in finished for key in keys),
                len(keys),
                sum(entries[key].seconds for key in keys if key in entries),
            )
            for kind, keys in kinds.items()
        )
        study, key = planned.study, planned.goal.key
        return StudyStatus(key, study.title, study.name, study.preset, stages, key in finished)

    def _other(self, key: str) -> StudyStatus:
        try:
            params = open_folder(self.root / key, _FIGURE).config().get("params", {})
        except RemanenceError:
            params = {}
        title = str(params.get("figure", key)).replace("_", " ").capitalize()
        return StudyStatus(key, title, "", "", (), finished=True)


def _is_figure(key: str) -> bool:
    return key.startswith(f"{_FIGURE}-")


def _is_picture(file: str) -> bool:
    return file.startswith("figures/") and file.endswith(".png")


@cache
def _plans(data_dir: str | None) -> tuple[Planned, ...]:
    """Every study that comes with the package and whose data are here, with every preset."""
    plans = []
    for path in shipped():
        for preset in presets_of(path):
            try:
                plans.append(plan(load_study(str(path), preset, data_dir=data_dir)))
            except RemanenceError:  # its data are not here, so its stages have no names
                continue
    return tuple(plans)
