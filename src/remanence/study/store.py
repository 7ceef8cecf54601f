"""Where artifacts live: one sealed folder a stage, found by the stage's key.

STORE/remanence-store.json   says that the folder is ours, and in which layout
STORE/train-3f…/             one sealed folder a stage
STORE/ledger.jsonl           what each computed stage took
STORE/logs/train-3f….log     what a failed stage said
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from remanence._version import __version__
from remanence.errors import RunFolderError
from remanence.storage import SEAL, Folder, atomic, create, open_folder
from remanence.storage.folder import FORMAT
from remanence.study.stages import Stage, in_order

_MARK = "remanence-store.json"
_LAYOUT = 1
"""Raised when stores change in a way that older code would misread."""


class Store:
    """A folder of artifacts. The same question is never computed twice."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def claim(self) -> None:
        """Make the folder a store, or refuse it."""
        self.check()
        if not (self.root / _MARK).exists():
            atomic.write_text(self.root / _MARK, json.dumps({"remanence": "store", "layout": _LAYOUT}) + "\n")

    def check(self) -> None:
        """Refuse somebody else's files, or a layout from the future; nothing is changed."""
        mark = self.root / _MARK
        if self.root.exists() and not self.root.is_dir():
            raise RunFolderError(f"{self.root} is a file; a store must be a folder.")
        if mark.exists():
            layout = _layout(mark)
            if layout > _LAYOUT:
                raise RunFolderError(
                    f"{self.root} is a store of layout {layout}; this is Remanence {__version__}, which reads up to "
                    f"{_LAYOUT}. Upgrade, or choose another --store."
                )
            return
        if self.root.exists() and any(not entry.name.startswith(".") for entry in self.root.iterdir()):
            raise RunFolderError(
                f"{self.root} is not empty and not a store; choose another --store. Nothing was changed."
            )

    def path(self, stage: Stage) -> Path:
        """Where this stage's artifact is or would be."""
        return self.root / stage.key

    def log(self, stage: Stage) -> Path:
        """Where a stage that fails leaves what it said."""
        return self.root / "logs" / f"{stage.key}.log"

    def get(self, stage: Stage) -> Folder:
        """The finished artifact of a stage."""
        return open_folder(self.path(stage), stage.kind.name)

    def holds(self, stage: Stage) -> bool:
        """Whether the artifact is there, whole, and made from the inputs that are there now; nothing is changed.

        One in a format that only newer code reads is refused.
        """
        path = self.path(stage)
        if not path.exists():
            return False
        _refuse_newer(path)
        try:
            found = self.get(stage)
            found.verify()
            return bool(found.config().get("inputs", []) == self._digests(stage))
        except RunFolderError:
            return False

    def survey(self, goals: Iterable[Stage]) -> tuple[list[Stage], list[Stage]]:
        """What is there and what is to be done; what depends on something missing is to be done again too."""
        there: list[Stage] = []
        todo: list[Stage] = []
        missing: set[str] = set()
        for stage in in_order(goals):
            if any(need.key in missing for need in stage.needs) or not self.holds(stage):
                missing.add(stage.key)
                todo.append(stage)
            else:
                there.append(stage)
        return there, todo

    def discard(self, stages: Iterable[Stage]) -> None:
        """Remove artifacts, whole or not."""
        for stage in stages:
            shutil.rmtree(self.path(stage), ignore_errors=True)

    def compute(self, stage: Stage) -> None:
        """Make the artifact, unless it has been made meanwhile."""
        inputs = [self.get(need) for need in stage.needs]
        if self.path(stage).exists():
            return
        question = {
            "stage": stage.key,
            "version": stage.kind.version,
            "needs": [need.key for need in stage.needs],
            "inputs": [each.digest() for each in inputs],
            "params": dict(stage.params),
        }
        try:
            with create(self.path(stage), stage.kind.name) as draft:
                draft.config(question)
                stage.kind.compute(draft, stage.params, inputs)
        except RunFolderError:
            if not self.path(stage).exists():  # an orphan of a killed run may have been a moment faster
                raise

    def artifacts(self) -> list[Path]:
        """Every artifact there is, whatever study it belongs to."""
        return sorted(path.parent for path in self.root.glob(f"*/{SEAL}"))

    def sweep(self) -> int:
        """Remove what killed workers left half-written; return how many pieces."""
        return atomic.sweep(self.root)

    def _digests(self, stage: Stage) -> list[str]:
        return [self.get(need).digest() for need in stage.needs]


def _layout(mark: Path) -> int:
    try:
        return int(json.loads(mark.read_text())["layout"])
    except (ValueError, KeyError, TypeError):
        raise RunFolderError(f"{mark} is damaged; choose another --store.") from None


def _refuse_newer(path: Path) -> None:
    try:
        found = json.loads((path / SEAL).read_text()).get("format", 0)
    except (OSError, ValueError, AttributeError):
        return
    if isinstance(found, int) and found > FORMAT:
        open_folder(path)
