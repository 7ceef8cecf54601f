"""How long each computed stage took, and on which machine.

This is not part of the artifacts, which are the same whoever made them and when.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from remanence.errors import RunFolderError
from remanence.stages.source_commit import source_commit
from remanence.stages.stage import Stage
from remanence.storage.parsing import parse_json
from remanence.storage.table_reading import read_record

_FILE = "ledger.jsonl"


@dataclass(frozen=True)
class Timing:
    """One computed stage; `commit` is that of the sources, empty if they are no git checkout."""

    key: str
    kind: str
    seconds: float
    finished: str
    machine: str
    commit: str = ""

    @property
    def started(self) -> datetime:
        """When the computation began."""
        return datetime.fromisoformat(self.finished) - timedelta(seconds=self.seconds)


class Timings:
    """The file of timings in a store; lines are only ever appended."""

    def __init__(self, root: Path) -> None:
        self._path = root / _FILE

    def add(self, stage: Stage, seconds: float, machine: str = "") -> None:
        """Append one line, short enough for the system to write it at once."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        timing = Timing(
            stage.key, stage.kind, round(seconds, 3), now, machine or this_machine(), source_commit()
        )
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(timing)) + "\n")

    def read(self, stages: Iterable[Stage] | None = None) -> dict[str, Timing]:
        """The last timing per key, of all stages or of these; a truncated line is skipped."""
        wanted = None if stages is None else {stage.key for stage in stages}
        timings: dict[str, Timing] = {}
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            try:
                timing = read_record(Timing, parse_json(line, self._path), self._path)
            except RunFolderError:
                continue
            if wanted is None or timing.key in wanted:
                timings[timing.key] = timing
        return timings


@cache
def this_machine() -> str:
    """Processor, number of cores and system."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
