"""Compute stages one after the other in this process: for stages that hold objects of the caller."""

from __future__ import annotations

from pathlib import Path

from remanence.stages.stage import Stage
from remanence.stages.worker import StageOutcome, attempt


class ThisProcess:
    """An executor without workers."""

    local = True
    slots = 1

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stage: Stage | None = None

    def start(self, stage: Stage) -> None:
        """Remember the stage; `wait` computes it."""
        self._stage = stage

    def wait(self, seconds: float) -> list[tuple[Stage, StageOutcome]]:
        """Compute the stage, however long it takes."""
        stage, self._stage = self._stage, None
        return [] if stage is None else [(stage, attempt(self._root, stage))]

    def close(self, *, abandon: bool) -> None:
        """Nothing to release."""
