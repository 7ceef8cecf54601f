"""Run studies: plan, compute the missing stages, read the result."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.errors import InputError
from remanence.stages import Store, Tally, Watcher, compute_stages, in_order
from remanence.stages.executors import make_executor
from remanence.stages.timings import Timings
from remanence.storage import Folder
from remanence.storage.lock import exclusive
from remanence.study.catalog import DEFAULT_PRESET, load_study
from remanence.study.checking import check
from remanence.study.figure_stage import FigureStage, figure_stage
from remanence.study.settings import Study

VARIABLE = "REMANENCE_STORE"


def store_folder(store: str | Path | None = None) -> Path:
    """The folder of the artifacts: the one given, else $REMANENCE_STORE, else a cache folder."""
    if store is not None:
        return Path(store).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "remanence" / "studies"


@dataclass(frozen=True)
class Planned:
    """A study and the stage it ends in."""

    study: Study
    goal: FigureStage


def plan(study: Study) -> Planned:
    """Check a study and build its stages; nothing is computed."""
    check(study)
    return Planned(study, figure_stage(study))


def plan_studies(
    names: Iterable[str],
    preset: str = DEFAULT_PRESET,
    overrides: Sequence[str] = (),
    *,
    data_dir: str | Path | None = None,
    device: str = "auto",
) -> list[Planned]:
    """Load studies with one of their presets, check them and build their stages.

    Args:
        names: paths of study files, or names of studies that come with the package.
        preset: `smoke`, `cpu`, `paper`, or another preset of the files.
        overrides: changed settings, such as `train.lr=0.1`.
        data_dir: folder of the data sets.
        device: where to compute.
    """
    folder = None if data_dir is None else str(Path(data_dir).expanduser().resolve())
    return [plan(load_study(name, preset, overrides, data_dir=folder, device=device)) for name in names]


@dataclass(frozen=True)
class StudyRun:
    """The counts and the wall time of a run of some studies."""

    tally: Tally
    seconds: float

    def document(self) -> dict[str, Any]:
        """The counts as JSON values."""
        tally = self.tally
        return {
            "computed": tally.computed,
            "reused": tally.reused,
            "failed": len(tally.failures),
            "blocked": tally.blocked,
            "seconds": round(self.seconds, 1),
            "seconds_by_stage": {kind: round(spent, 1) for kind, spent in sorted(tally.seconds.items())},
            "failures": [
                {"stage": failure.stage.key, "why": failure.message, "log": failure.log}
                for failure in tally.failures
            ],
        }


def run_planned(
    planned: Sequence[Planned],
    store: Store,
    *,
    executor: str = "process",
    workers: int | None = None,
    address: str | None = None,
    watcher: Watcher | None = None,
) -> StudyRun:
    """Compute the missing stages of some studies, common ones once; by default one stage per core at a time."""
    started = time.perf_counter()
    chosen = make_executor(executor, store.root, workers=worker_count(workers), address=address)
    store.claim()
    refusal = f"Another study is running in {store.root}; wait for it, or use another store."
    with exclusive(store.root / ".lock", refusal):
        store.sweep()
        goals = [study.goal for study in planned]
        tally = compute_stages(goals, store, chosen, watcher)
    return StudyRun(tally, time.perf_counter() - started)


def worker_count(workers: int | None) -> int:
    """The number of workers: the one given, else the number of cores."""
    count = (os.cpu_count() or 1) if workers is None else workers
    if count < 1:
        raise InputError(f"`workers` must be at least 1; got {count}.")
    return count


def result_of(planned: Planned, store: Store) -> tuple[Folder, dict[str, Any]] | None:
    """A study's finished figure and its document; None when it has not been computed."""
    if not store.path(planned.goal).exists():
        return None
    folder = store.get(planned.goal)
    return folder, folder.document("results")


def result_document(planned: Planned, store: Store) -> dict[str, Any]:
    """A study's result as JSON values; `artifact` is None when it has not been computed."""
    result = result_of(planned, store)
    base = {"name": planned.study.name, "preset": planned.study.preset, "title": planned.study.title}
    if result is None:
        return base | {"artifact": None}
    folder, document = result
    return base | {"artifact": str(folder.path), "digest": folder.digest(), **document}


@dataclass(frozen=True)
class StudyStatus:
    """How much of a study exists.

    Args:
        name: its name.
        done: number of finished stages.
        missing: number of stages to compute.
        missing_kinds: their kinds.
        core_seconds: computing time of the finished stages.
    """

    name: str
    done: int
    missing: int
    missing_kinds: list[str]
    core_seconds: float


def study_status(planned: Planned, store: Store) -> StudyStatus:
    """How much of a study exists in a store, and the time that it took."""
    finished, todo = store.survey([planned.goal])
    timings = Timings(store.root).read(in_order([planned.goal]))
    seconds = sum(timing.seconds for timing in timings.values())
    kinds = sorted({stage.kind for stage in todo})
    return StudyStatus(planned.study.name, len(finished), len(todo), kinds, round(seconds, 1))
