"""How a study's result came about: the command, the settings, the time it took and where."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from remanence._version import __version__
from remanence.storage import to_toml
from remanence.study.ledger import Entry, Ledger
from remanence.study.running import Planned
from remanence.study.settings import Study
from remanence.study.stages import Stage, in_order
from remanence.study.store import Store

_ABOUT = ("title", "claim", "note", "name", "file", "preset", "figure")
"""Of a study, what is no setting: the page has it elsewhere."""


@dataclass(frozen=True)
class Facts:
    """What a page says below its figure.

    Args:
        command: what to type for the same.
        stages: how many there are.
        seeds: of how many training runs; a study may need fewer than its settings allow for.
        core_seconds: what computing them took, added up over processes; stages shared with other studies count too.
        wall_seconds: during how long at least one of them was being computed.
        machines: where.
        finished: when the last one ended.
        settings: all of them, as the TOML of a study file.
    """

    command: str
    stages: int
    seeds: int
    core_seconds: float
    wall_seconds: float
    machines: tuple[str, ...]
    finished: str
    settings: str
    version: str = __version__


def facts_of(planned: Planned, store: Store, overrides: Sequence[str] = ()) -> Facts:
    """The facts of a finished study, from its settings and the store's ledger."""
    study, stages = planned.study, in_order([planned.goal])
    entries = list(Ledger(store.root).entries(stages).values())
    words = ["remanence", "study", "run", study.file, "--preset", study.preset]
    return Facts(
        command=shlex.join([*words, *(part for each in overrides for part in ("--set", each))]),
        stages=len(stages),
        seeds=seeds_of(stages),
        core_seconds=sum(each.seconds for each in entries),
        wall_seconds=_covered(entries),
        machines=tuple(sorted({each.machine for each in entries})),
        finished=max((each.finished for each in entries), default=""),
        settings=to_toml(_settable(study)),
    )


def seeds_of(stages: Iterable[Stage]) -> int:
    """With how many seeds a model was trained among these stages."""
    return len({stage.params["seed"] for stage in stages if stage.kind.name == "train"})


def _covered(entries: Iterable[Entry]) -> float:
    """The length of time that the entries' spans cover together."""
    ends = [(datetime.fromisoformat(each.finished).timestamp(), each.seconds) for each in entries]
    covered, until = 0.0, float("-inf")
    for begin, end in sorted((end - seconds, end) for end, seconds in ends):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


def _settable(study: Study) -> dict[str, Any]:
    """The settings under the names by which a file or `--set` gives them."""
    table = {key: value for key, value in asdict(study).items() if key not in _ABOUT}
    train, model = table["train"], table["model"]
    return table | {
        "train": train.pop("recipe") | train,
        "model": {"name": model["name"], **model["options"]},
    }
