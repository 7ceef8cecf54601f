"""What every computed stage took: not part of any artifact, which must be the same whoever made it and when."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from remanence.study.stages import Stage

_FILE = "ledger.jsonl"


@dataclass(frozen=True)
class Entry:
    """One stage, computed."""

    key: str
    kind: str
    seconds: float
    finished: str
    machine: str


class Ledger:
    """A file of a store; lines are only ever added."""

    def __init__(self, root: Path) -> None:
        self._path = root / _FILE

    def note(self, stage: Stage, seconds: float, where: str = "") -> None:
        """Add a line, short enough for the system to write it whole; of work done here, where nothing else is said."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Entry(stage.key, stage.kind.name, round(seconds, 3), now, where or machine())
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def entries(self, stages: Iterable[Stage] | None = None) -> dict[str, Entry]:
        """The last entry of each key, of all or of these stages; a line cut short by a crash is passed over."""
        wanted = None if stages is None else {stage.key for stage in stages}
        found: dict[str, Entry] = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            try:
                entry = Entry(**json.loads(line))
            except (ValueError, TypeError):
                continue
            if wanted is None or entry.key in wanted:
                found[entry.key] = entry
        return found


@cache
def machine() -> str:
    """This machine in a few words."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
