"""How a study's result came about: the command, the settings, the time it took and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from remanence._version import __version__
from remanence.study.ledger import Ledger
from remanence.study.running import Planned
from remanence.study.stages import in_order
from remanence.study.store import Store


@dataclass(frozen=True)
class Facts:
    """What a page says below its figure.

    Args:
        command: what to type for the same.
        stages: how many there are.
        core_seconds: what computing them took, added up over processes; stages shared with other studies count too.
        machines: where.
        finished: when the last one ended.
        settings: all that differ from nothing, by their dotted names.
    """

    command: str
    stages: int
    core_seconds: float
    machines: tuple[str, ...]
    finished: str
    settings: Mapping[str, Any]
    version: str = __version__


def facts_of(planned: Planned, store: Store, overrides: Sequence[str] = ()) -> Facts:
    """The facts of a finished study, from its settings and the store's ledger."""
    study, stages = planned.study, in_order([planned.goal])
    entries = Ledger(store.root).entries(stages)
    given = "".join(f" --set {each}" for each in overrides)
    return Facts(
        command=f"remanence study run studies/{study.name}.toml --preset {study.preset}{given}",
        stages=len(stages),
        core_seconds=sum(each.seconds for each in entries.values()),
        machines=tuple(sorted({each.machine for each in entries.values()})),
        finished=max((each.finished for each in entries.values()), default=""),
        settings=dict(_flat(asdict(study))),
    )


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{prefix}{key}.")
        elif prefix or key not in ("title", "claim", "note", "name", "preset", "figure"):
            found.append((f"{prefix}{key}", list(value) if isinstance(value, tuple) else value))
    return found
