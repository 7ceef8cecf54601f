"""Where artifacts live: one sealed folder a stage, found by the stage's key."""

from __future__ import annotations

import shutil
from pathlib import Path

from remanence.errors import RunFolderError
from remanence.storage import Folder, create, open_folder
from remanence.storage.atomic import sweep
from remanence.study.stages import Stage


class Store:
    """A folder of artifacts. The same question is never computed twice."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, stage: Stage) -> Path:
        """Where this stage's artifact is or would be."""
        return self.root / stage.key

    def get(self, stage: Stage) -> Folder:
        """The finished artifact of a stage."""
        return open_folder(self.path(stage), stage.kind.name)

    def holds(self, stage: Stage) -> bool:
        """Whether the artifact is there and whole; a damaged one is removed, so that it is made again."""
        path = self.path(stage)
        if not path.exists():
            return False
        try:
            self.get(stage).verify()
        except RunFolderError:
            shutil.rmtree(path)
            return False
        return True

    def compute(self, stage: Stage) -> None:
        """Make the artifact, unless somebody else has just made it."""
        inputs = [self.get(need) for need in stage.needs]
        if self.path(stage).exists():
            return
        with create(self.path(stage), stage.kind.name) as draft:
            draft.config(
                {"stage": stage.key, "params": dict(stage.params), "needs": [s.key for s in stage.needs]}
            )
            stage.kind.compute(draft, stage.params, inputs)

    def sweep(self) -> int:
        """Remove what killed workers left half-written; return how many pieces."""
        return sweep(self.root)
