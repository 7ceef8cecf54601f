"""How a study's result was made: the command, the settings, the time it took and the machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from remanence._version import __version__
from remanence.stages import Stage, Store, in_order
from remanence.stages.timings import Timing, Timings
from remanence.storage import to_toml
from remanence.study.criterion_order import CriterionOrder, criterion_order
from remanence.study.running import Planned
from remanence.study.settings import Study
from remanence.study.train_stages import Train

_ABOUT = ("title", "claim", "note", "criterion", "name", "file", "preset", "figure", "device")
"""Fields of a study that are not settings: the page shows them elsewhere."""


@dataclass(frozen=True)
class Provenance:
    """What a page says below its figure.

    Args:
        command: the command that reproduces it.
        stages: number of stages.
        seeds: number of training runs; a study may need fewer than its settings allow for.
        core_seconds: computing time, summed over processes; stages shared with other studies count too.
        wall_seconds: the time during which at least one of the stages was being computed.
        machines: where they were computed.
        finished: when the last one ended.
        settings: all settings, as the TOML of a study file.
        order: the commit of the criterion beside the first deciding run.
    """

    command: str
    stages: int
    seeds: int
    core_seconds: float
    wall_seconds: float
    machines: tuple[str, ...]
    finished: str
    settings: str
    order: CriterionOrder
    version: str = __version__


def provenance_of(planned: Planned, store: Store, overrides: Sequence[str] = ()) -> Provenance:
    """The provenance of a finished study, from its settings and the store's timings."""
    study, stages = planned.study, in_order([planned.goal])
    timings = list(Timings(store.root).read(stages).values())
    words = ["remanence", "study", "run", study.file, "--preset", study.preset]
    changes = [part for override in overrides for part in ("--set", override)]
    return Provenance(
        command=shlex.join([*words, *changes]),
        stages=len(stages),
        seeds=count_seeds(stages, study.seed_numbers),
        core_seconds=sum(timing.seconds for timing in timings),
        wall_seconds=_covered(timings),
        machines=tuple(sorted({timing.machine for timing in timings})),
        finished=max((timing.finished for timing in timings), default=""),
        settings=to_toml(settings_of(study)),
        order=criterion_order(planned, store),
    )


def count_seeds(stages: Iterable[Stage], seeds: range) -> int:
    """The number of these seeds with which a model was trained among these stages."""
    return len({stage.seed for stage in stages if isinstance(stage, Train) and stage.seed in seeds})


def _covered(timings: Iterable[Timing]) -> float:
    """The length of time that the stages cover together."""
    ends = [(datetime.fromisoformat(timing.finished).timestamp(), timing.seconds) for timing in timings]
    covered, until = 0.0, float("-inf")
    for begin, end in sorted((end - seconds, end) for end, seconds in ends):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


def settings_of(study: Study) -> dict[str, Any]:
    """The settings under the names that a file or `--set` uses."""
    table = {key: value for key, value in asdict(study).items() if key not in _ABOUT}
    train, model = table["train"], table["model"]
    table["data"] = {key: table["data"][key] for key in ("source", "train", "test")}
    return table | {
        "train": train.pop("recipe") | train,
        "model": {"name": model["name"], **model["options"]},
    }
