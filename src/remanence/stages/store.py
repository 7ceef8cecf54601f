"""A store of artifacts: one sealed folder per stage, found by the stage's key.

STORE/remanence-store.json   marks the folder as a store, with its layout version
STORE/train-3f…/             one sealed folder per stage
STORE/ledger.jsonl           how long each computed stage took, and where
STORE/logs/train-3f….log     output and traceback of a failed stage
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from remanence._version import __version__
from remanence.errors import RunFolderError
from remanence.stages.stage import Stage, in_order
from remanence.storage import SEAL, Folder, atomic, create, open_folder
from remanence.storage.folder import FORMAT
from remanence.storage.parsing import parse_json, read_file

_MARK = "remanence-store.json"
_LAYOUT = 1
"""Raised when stores change in a way that older code would misread."""


class Store:
    """A folder of artifacts. No stage is computed twice."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def claim(self) -> None:
        """Mark the folder as a store, or refuse it."""
        self.check()
        if not (self.root / _MARK).exists():
            atomic.write_text(self.root / _MARK, json.dumps({"remanence": "store", "layout": _LAYOUT}) + "\n")

    def check(self) -> None:
        """Refuse a folder with other files, or a store of a newer layout; nothing is changed."""
        mark = self.root / _MARK
        if self.root.exists() and not self.root.is_dir():
            raise RunFolderError(f"{self.root} is a file; a store must be a folder.")
        if mark.exists():
            layout = _layout(mark)
            if layout > _LAYOUT:
                raise RunFolderError(
                    f"{self.root} is a store of layout {layout}; this is Remanence {__version__}, which reads up to "
                    f"{_LAYOUT}. Upgrade, or choose another store."
                )
            return
        if self.root.exists() and any(not entry.name.startswith(".") for entry in self.root.iterdir()):
            raise RunFolderError(
                f"{self.root} is not empty and not a store; choose another folder. Nothing was changed."
            )

    def path(self, stage: Stage) -> Path:
        """The folder of this stage's artifact, whether it exists or not."""
        return self.root / stage.key

    def log(self, stage: Stage) -> Path:
        """The log file of a stage that failed."""
        return self.root / "logs" / f"{stage.key}.log"

    def get(self, stage: Stage) -> Folder:
        """The finished artifact of a stage."""
        return open_folder(self.path(stage), stage.kind)

    def holds(self, stage: Stage) -> bool:
        """Whether the artifact exists, is intact, and was made from the current inputs; nothing is changed.

        An artifact in a newer format is refused.
        """
        path = self.path(stage)
        if not path.exists():
            return False
        _refuse_newer(path)
        try:
            artifact = self.get(stage)
            artifact.verify()
            return bool(artifact.config().get("inputs", {}) == self._digests(stage))
        except RunFolderError:
            return False

    def survey(self, goals: Iterable[Stage]) -> tuple[list[Stage], list[Stage]]:
        """The finished stages and those to compute; a stage with a missing input is computed again."""
        finished: list[Stage] = []
        todo: list[Stage] = []
        missing: set[str] = set()
        for stage in in_order(goals):
            if any(need.key in missing for need in stage.needs) or not self.holds(stage):
                missing.add(stage.key)
                todo.append(stage)
            else:
                finished.append(stage)
        return finished, todo

    def discard(self, stages: Iterable[Stage]) -> None:
        """Remove artifacts, intact or not."""
        for stage in stages:
            shutil.rmtree(self.path(stage), ignore_errors=True)

    def compute(self, stage: Stage) -> None:
        """Make the artifact, unless it exists by now."""
        if self.path(stage).exists():
            return
        question = {
            "stage": stage.key,
            "version": stage.version,
            "needs": [need.key for need in stage.needs],
            "inputs": self._digests(stage),
            "params": stage.params,
        }
        try:
            with create(self.path(stage), stage.kind) as draft:
                draft.config(question)
                stage.compute(draft, self.get)
        except RunFolderError:
            if not self.path(stage).exists():  # an orphan of a killed run may have been a moment faster
                raise

    def artifacts(self) -> list[Path]:
        """All artifacts in the store."""
        return sorted(path.parent for path in self.root.glob(f"*/{SEAL}"))

    def sweep(self) -> int:
        """Remove half-written artifacts of killed workers; return their number."""
        return atomic.sweep(self.root)

    def _digests(self, stage: Stage) -> dict[str, list[str]]:
        return {name: [self.get(need).digest() for need in needs] for name, needs in stage.inputs.items()}


def _layout(mark: Path) -> int:
    try:
        return int(parse_json(mark.read_bytes(), mark)["layout"])
    except (ValueError, KeyError, TypeError):
        raise RunFolderError(f"{mark} is damaged; choose another store.") from None


def _refuse_newer(path: Path) -> None:
    try:
        layout = parse_json(read_file(path / SEAL), path / SEAL).get("format", 0)
    except (OSError, ValueError, AttributeError):
        return
    if isinstance(layout, int) and layout > FORMAT:
        open_folder(path)
