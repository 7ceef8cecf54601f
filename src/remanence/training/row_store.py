"""The rows of a trace while it is recorded: in memory, or on disk, where a resumed run finds them."""

from __future__ import annotations

import shutil
from pathlib import Path

from remanence.errors import InputError, RunFolderError
from remanence.storage import create, open_folder
from remanence.training.example_statistics import Row
from remanence.training.ranks import Ranks


class RowStore:
    """Rows by step.

    Args:
        folder: where to keep them; None for memory.
        ranks: the processes that record; the first one writes.
    """

    def __init__(self, folder: Path | None, ranks: Ranks) -> None:
        self._folder, self._ranks = folder, ranks
        self._rows: dict[int, Row] = {}

    def keep(self, step: int, row: Row) -> None:
        if self._folder is None:
            self._rows[step] = row
            return
        if self._ranks.first:
            with create(self._path(step), "trace row") as draft:
                draft.tensors("row", row)
        self._ranks.wait()

    def row(self, step: int) -> Row:
        if self._folder is None:
            if step not in self._rows:
                raise InputError(
                    f"Resuming needs the rows recorded before, at step {step} for example; pass their folder as `out`."
                )
            return self._rows[step]
        try:
            return open_folder(self._path(step), "trace row").tensors("row")
        except RunFolderError as error:
            raise RunFolderError(f"The row of step {step} is missing or damaged: {error}") from error

    def steps_until(self, last: int) -> list[int]:
        """Steps of the rows on disk up to `last`; later ones are removed."""
        if self._folder is None:
            return []
        on_disk = sorted(int(path.name.removeprefix("step-")) for path in self._folder.glob("step-*"))
        self._ranks.wait()
        for step in on_disk:
            if step > last and self._ranks.first:
                shutil.rmtree(self._path(step), ignore_errors=True)
        self._ranks.wait()
        return [step for step in on_disk if step <= last]

    def clear(self) -> None:
        """Remove the rows from disk."""
        if self._folder is not None and self._ranks.first:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, step: int) -> Path:
        assert self._folder is not None  # callers have checked
        return self._folder / f"step-{step:09d}"
